#!/bin/sh
# Makes what kustomization.yaml packs up: a key for each pod, the topology file that names them, each pod's share of the digits.
#
#   deploy/kubernetes/prepare.sh [NAMESPACE]                       with the image gradvine:latest (or GRADVINE_IMAGE)
#   GRADVINE=target/release/gradvine deploy/kubernetes/prepare.sh  with a binary
#
# Another namespace than gradvine, or another number of nodes, is to be changed in the YAML files too. Keys and rows that exist
# are kept, so it may be run again.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
image=${GRADVINE_IMAGE:-gradvine:latest}
namespace=${1:-gradvine}
pods="0 1 2 3"

gradvine() {
    if [ -n "${GRADVINE:-}" ]; then
        "$GRADVINE" "$@"
    else
        docker run --rm --network none --user "$(id -u):$(id -g)" --volume "$here:$here" "$image" "$@"
    fi
}

mkdir -p "$here/keys" "$here/rows"
count=0
for pod in $pods; do
    key=$here/keys/gradvine-$pod.key
    [ -e "$key" ] || gradvine identity new "$key" >/dev/null
    count=$((count + 1))
done

{
    echo "# Made by prepare.sh: a ring in this order. PeerIds are those of the keys in keys/."
    echo 'name    = "kubernetes-ring"'
    echo 'family  = "ring"'
    echo "nodes   = $count"
    echo 'weights = "metropolis"'
    for pod in $pods; do
        peer=$(gradvine identity show "$here/keys/gradvine-$pod.key")
        echo
        echo '[[node]]'
        echo "name = \"gradvine-$pod\""
        echo "peer = \"$peer\""
        echo "addresses = [\"/dns4/gradvine-$pod.gradvine.$namespace.svc.cluster.local/tcp/4001\"]"
    done
} >"$here/topology.toml.part"
mv "$here/topology.toml.part" "$here/topology.toml"
gradvine topology check "$here/topology.toml"

# kustomize reads no file outside its folder.
cp "$here/../experiment.toml" "$here/experiment.toml"

# Row i of the embedded digits goes to pod i mod 4.
for pod in $pods; do
    rows=$here/rows/gradvine-$pod.csv
    [ -e "$rows" ] || gzip -dc "$here/../../data/digits.csv.gz" | awk -v n="$count" -v i="$pod" 'NR % n == i' >"$rows"
done
echo "ready: kubectl apply --kustomize $here"
