# What compose/prepare.sh and kubernetes/prepare.sh share. They set `here`, their own folder, and
# `count`, the number of nodes.

image=${GRADVINE_IMAGE:-gradvine:latest}

gradvine() {
    if [ -n "${GRADVINE:-}" ]; then
        "$GRADVINE" "$@"
    else
        docker run --rm --network none --user "$(id -u):$(id -g)" --volume "$here:$here" "$image" "$@"
    fi
}

# key FILE: makes a key, unless it exists.
key() {
    [ -e "$1" ] || gradvine identity new "$1" >/dev/null
}

# ring NAME KEYS: writes the topology file. Standard input has a line for each node: its name, its
# address, its key.
ring() {
    {
        echo "# Made by prepare.sh: a ring in this order. PeerIds are those of the keys in $2."
        echo "name    = \"$1\""
        echo 'family  = "ring"'
        echo "nodes   = $count"
        echo 'weights = "metropolis"'
        while read -r name address key; do
            peer=$(gradvine identity show "$key" </dev/null)
            echo
            echo '[[node]]'
            echo "name = \"$name\""
            echo "peer = \"$peer\""
            echo "addresses = [\"$address\"]"
        done
    } >"$here/topology.toml.part"
    mv "$here/topology.toml.part" "$here/topology.toml"
    gradvine topology check "$here/topology.toml"
}

# rows I FILE: row i of the embedded digits goes to node i mod `count`. Rows that exist are kept.
rows() {
    [ -e "$2" ] || gzip -dc "$here/../../data/digits.csv.gz" | awk -v n="$count" -v i="$1" 'NR % n == i' >"$2"
}
