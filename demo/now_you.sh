# now_you.sh - how every demo ends; to be sourced.
# now_you WORD...: the next command for whoever reads it, as a shell takes it.
now_you() {
    local word line=
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./:,=-]+$ ]] && line+=" $word" || line+=" '${word//\'/\'\\\'\'}'"
    done
    printf '\n== now you\n   $%s\n' "$line"
}
