#!/bin/sh
# Takes the picture of docs/judging.md: report.sh GRADVINE report.png, with chromium on the path.
set -eu
gradvine=$(realpath "$1") picture=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
cat > five.toml <<'END'
name = "five"
family = "ring"
nodes = 5
node = [{ name = "berlin" }, { name = "lyon" }, { name = "oslo" }, { name = "rome" },
  { name = "turin" }]
END
"$gradvine" simulate -q --topology five.toml --set network.preset=4g --rounds 300 \
  --set run.evaluate_every=10 --set rule.kind=d-psgd --set compressor.kind=identity \
  --set 'network.absent=[{nodes=["oslo"],from=100,until=160}]' --out digits
"$gradvine" report -q digits --out report.html
chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1560 \
  --virtual-time-budget=5000 "--screenshot=$picture" "file://$folder/report.html" 2> /dev/null
