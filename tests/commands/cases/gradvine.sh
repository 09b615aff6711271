#!/bin/sh
# The command `gradvine` of the cases. It runs the program that the test names in $PROGRAM.
# It prints standard output first, then standard error with "! " before each line.
# A refused command (exit code 2) must change no files. No command may change files in $REPOSITORY.
unset RUST_LOG COLUMNS

# Cases without a folder of their own start where the test does. They run in an empty folder.
if [ "$(pwd -P)" = "$START" ]; then
    cd "$EMPTY" || exit
fi

state() {
    find . | sort
    find . -type f -exec cksum {} + | sort
}

before=$(state)
{ errors=$("$PROGRAM" "$@" 2>&1 >&3 3>&- </dev/null); } 3>&1
code=$?

if [ -n "$errors" ]; then
    printf '%s\n' "$errors" | sed 's/^/! /; s/^! $/!/'
fi
case $code:$(pwd -P)/ in
    2:* | *:"$EMPTY"/* | *:"$REPOSITORY"/*)
        [ "$before" = "$(state)" ] || echo "! NOT ALLOWED: this command changed files."
        ;;
esac
exit $code
