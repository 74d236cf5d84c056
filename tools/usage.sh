# SPDX-License-Identifier: MIT
# Sourced by the scripts of tools/ and bench/: what each says to --help and to an option that it does not have.

# usage OPTIONS ARGUMENT...: for --help prints the head of the script; stops at an option that OPTIONS does not name.
usage() {
    usage_options=" $1 "
    shift
    for usage_word in "$@"; do
        case $usage_word in
            -h | --help)
                awk 'NR > 2 && !/^#/ { exit } NR > 2 { sub(/^# ?/, ""); print }' "$0"
                exit 0
                ;;
            -*)
                case $usage_options in
                    *" $usage_word "*) ;;
                    *) echo "${0##*/}: unknown option '$usage_word'; --help says what there is" >&2; exit 2 ;;
                esac
                ;;
        esac
    done
}

# ld.so takes a space or a colon in LD_PRELOAD for the end of a name.
is_preloadable() {
    case $1 in
        *[[:space:]:]*) return 1 ;;
    esac
}
