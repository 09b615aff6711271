#!/bin/sh
# Makes what compose.yaml mounts: a key for each node, the topology file that names them, and each
# node's share of the digits.
#
#   deploy/compose/prepare.sh
#       with the image gradvine:latest (or GRADVINE_IMAGE)
#   GRADVINE=target/release/gradvine deploy/compose/prepare.sh
#       with a binary
#
# Keys and rows that exist are kept, so it may be run again.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
names="london virginia tokyo saopaulo"
count=4
. "$here/../ring.sh"

for name in $names; do
    mkdir -p "$here/nodes/$name/data" "$here/nodes/$name/out"
    key "$here/nodes/$name/node.key"
done
for name in $names; do
    echo "$name /dns4/$name/tcp/4001 $here/nodes/$name/node.key"
done | ring compose-ring nodes/
index=0
for name in $names; do
    rows "$index" "$here/nodes/$name/data/rows.csv"
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
