#!/bin/sh
# Makes what compose.yaml mounts: a key for each node, the topology file that names them, and each node's share of the digits.
#
#   deploy/compose/prepare.sh                         with the image gradvine:latest (or GRADVINE_IMAGE)
#   GRADVINE=target/release/gradvine deploy/compose/prepare.sh     with a binary
#
# Keys and rows that exist are kept, so it may be run again.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
image=${GRADVINE_IMAGE:-gradvine:latest}
names="london virginia tokyo saopaulo"

gradvine() {
    if [ -n "${GRADVINE:-}" ]; then
        "$GRADVINE" "$@"
    else
        docker run --rm --network none --user "$(id -u):$(id -g)" --volume "$here:$here" "$image" "$@"
    fi
}

count=0
for name in $names; do
    mkdir -p "$here/nodes/$name/data" "$here/nodes/$name/out"
    key=$here/nodes/$name/node.key
    [ -e "$key" ] || gradvine identity new "$key" >/dev/null
    count=$((count + 1))
done

{
    echo "# Made by prepare.sh: a ring in this order. PeerIds are those of the keys in nodes/."
    echo 'name    = "compose-ring"'
    echo 'family  = "ring"'
    echo "nodes   = $count"
    echo 'weights = "metropolis"'
    for name in $names; do
        peer=$(gradvine identity show "$here/nodes/$name/node.key")
        echo
        echo '[[node]]'
        echo "name = \"$name\""
        echo "peer = \"$peer\""
        echo "addresses = [\"/dns4/$name/tcp/4001\"]"
    done
} >"$here/topology.toml.part"
mv "$here/topology.toml.part" "$here/topology.toml"
gradvine topology check "$here/topology.toml"

# Row i of the embedded digits goes to node i mod 4.
index=0
for name in $names; do
    rows=$here/nodes/$name/data/rows.csv
    [ -e "$rows" ] || gzip -dc "$here/../../data/digits.csv.gz" | awk -v n="$count" -v i="$index" 'NR % n == i' >"$rows"
    index=$((index + 1))
done

# The containers run as the owner of the keys. Not as root: its keys go to the image's user.
uid=$(id -u) gid=$(id -g)
if [ "$uid" = 0 ]; then
    uid=10001 gid=10001
    chown -R "$uid:$gid" "$here/nodes"
fi
printf 'GRADVINE_UID=%s\nGRADVINE_GID=%s\n' "$uid" "$gid" >"$here/../.env"
echo "ready: docker compose --file $(dirname -- "$here")/compose.yaml up"
