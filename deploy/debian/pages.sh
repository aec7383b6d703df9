#!/bin/sh
# Write completions for shells: pages.sh BIN SHARE
#
# Those of the commands in the folder BIN, into the folder SHARE; the manual pages beside BIN go to
# debian/man.
set -eu
bin=$1 share=$2

mkdir -p debian/man
mv "$bin"/../share/man/man1/*.1 debian/man
rm -r "$bin/../share"

bash=$share/bash-completion/completions
zsh=$share/zsh/vendor-completions
fish=$share/fish/vendor_completions.d
mkdir -p "$bash" "$zsh" "$fish"
for command in beanstalk beanstalk-work binlog-inspect; do
    variable=_$(echo "$command" | tr a-z- A-Z_)_COMPLETE
    complete() { env "$variable=$1_source" "$bin/python3" -B "$bin/$command"; }
    complete bash > "$bash/$command"
    complete zsh > "$zsh/_$command"
    complete fish > "$fish/$command.fish"
done
