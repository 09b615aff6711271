#!/bin/sh
# Makes what kustomization.yaml packs up: a key for each pod, the topology file that names them,
# each pod's share of the digits.
#
#   deploy/kubernetes/prepare.sh [NAMESPACE]
#       with the image gradvine:latest (or GRADVINE_IMAGE)
#   GRADVINE=target/release/gradvine deploy/kubernetes/prepare.sh [NAMESPACE]
#       with a binary
#
# Another namespace than gradvine, or another number of nodes, is to be changed in the YAML files
# too. Keys and rows that exist are kept, so it may be run again.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
namespace=${1:-gradvine}
pods="0 1 2 3"
count=4
. "$here/../ring.sh"

mkdir -p "$here/keys" "$here/rows"
for pod in $pods; do
    key "$here/keys/gradvine-$pod.key"
done
# What a browser must send to see the page of a node.
[ -s "$here/keys/token" ] || od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$here/keys/token"
for pod in $pods; do
    echo "gradvine-$pod /dns4/gradvine-$pod.gradvine.$namespace.svc.cluster.local/tcp/4001 $here/keys/gradvine-$pod.key"
done | ring kubernetes-ring keys/
# kustomize reads no file outside its folder.
cp "$here/../experiment.toml" "$here/experiment.toml"
for pod in $pods; do
    rows "$pod" "$here/rows/gradvine-$pod.csv"
done
echo "ready: kubectl apply --kustomize $here"
