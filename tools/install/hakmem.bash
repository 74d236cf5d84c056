# SPDX-License-Identifier: MIT
# Completion for bash: commands and options are those that the help of hakmem lists.
_hakmem()
{
    local cur=${COMP_WORDS[COMP_CWORD]} i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            ! declare -F _command_offset >/dev/null || _command_offset $((i + 1))
            return
        fi
    done
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" --help 2>/dev/null | awk '/^  [a-z]+  /{ print $1 }')" -- "$cur")
    elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == --set || (${COMP_WORDS[1]} == [gs]et && COMP_CWORD -gt 2) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" options 2>/dev/null | grep -oE '^HAKMEM_\w+')" -- "$cur")
    elif [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" "${COMP_WORDS[1]}" --help 2>/dev/null |
            sed '/^examples:/,$d' | grep -oE -e '--[a-z-]+' | sort -u) --" -- "$cur")
    else
        compopt -o default 2>/dev/null
    fi
}
complete -F _hakmem hakmem
