/*
 * The completion scripts of the shells. When the tab key is pressed, each runs
 *   delayq completion --words -- WORD… CURRENT
 * The first line of the answer says what to offer:
 *   words           the lines that follow: a word, a tab and its description
 *   files BEFORE    names of files, with BEFORE in front
 *   command N       the completions of the command that begins after N words
 */

// Bash splits words at the characters of COMP_WORDBREAKS, such as : and =. So the script joins neighbouring pieces of the
// line to words again. What it offers replaces only the last piece.
export const bash = `# Completes delayq in bash.
_delayq() {
  local program=\${COMP_WORDS[0]/#\\~\\//$HOME/} line=\${COMP_LINE:0:COMP_POINT} words=() reply part tail word i
  for ((i = 0; i <= COMP_CWORD; i++)); do
    if ((i > 0)) && [[ $line == [[:space:]]* ]]; then words+=(''); fi
    while [[ $line == [[:space:]]* ]]; do line=\${line:1}; done
    part=\${COMP_WORDS[i]}
    if ((i == COMP_CWORD)); then part=$line; fi
    if ((i == 0)); then words=(''); fi
    words[\${#words[@]} - 1]+=$part
    line=\${line#"$part"}
  done
  local current=\${words[\${#words[@]} - 1]}
  reply=$("$program" completion --words -- "\${words[@]:1}" 2>/dev/null) || return
  tail=$current
  for part in : =; do
    if [[ $COMP_WORDBREAKS == *"$part"* ]]; then tail=\${tail##*"$part"}; fi
  done
  local broken=\${current%"$tail"}
  COMPREPLY=()
  case $reply in
    files*)
      compopt -o filenames 2>/dev/null
      part=\${reply#files }
      while IFS= read -r word; do
        if [[ -n $part && -d $word ]]; then word+=/; compopt -o nospace 2>/dev/null; fi
        word=$part$word
        COMPREPLY+=("\${word#"$broken"}")
      done < <(compgen -f -- "\${current#"$part"}")
      ;;
    command*)
      for ((i = 1; i < COMP_CWORD; i++)); do if [[ \${COMP_WORDS[i]} == -- ]]; then break; fi; done
      if declare -F _comp_command_offset >/dev/null; then _comp_command_offset $((i + 1))
      elif declare -F _command_offset >/dev/null; then _command_offset $((i + 1))
      else
        compopt -o filenames 2>/dev/null
        part=-f
        if ((COMP_CWORD == i + 1)); then part=-c; fi
        while IFS= read -r word; do COMPREPLY+=("\${word#"$broken"}"); done < <(compgen "$part" -- "$current")
      fi
      ;;
    *)
      {
        read -r
        while IFS=$'\\t' read -r word _; do COMPREPLY+=("\${word#"$broken"}"); done
      } <<<"$reply"
      if [[ \${#COMPREPLY[@]} == 1 && \${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
      ;;
  esac
}
complete -F _delayq delayq
`;

export const zsh = `#compdef delayq
# Completes delayq in zsh.
_delayq() {
  local program=\${words[1]/#\\~\\//$HOME/} line
  local -a reply found
  reply=("\${(@f)$("$program" completion --words -- "\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  case $reply[1] in
    files*)
      compset -P "\${(b)\${reply[1]#files }}"
      _files
      ;;
    command*)
      local drop=$((\${reply[1]#command } + 1))
      shift $drop words
      ((CURRENT -= drop))
      _normal
      ;;
    words)
      for line in "\${(@)reply[2,-1]}"; do
        found+=("\${\${line%%$'\\t'*}//:/\\\\:}:\${line#*$'\\t'}")
      done
      if [[ $#found == 1 && $found[1] == *=: ]]; then _describe delayq found -S ''
      else _describe delayq found; fi
      ;;
  esac
}
if [[ $funcstack[1] == _delayq ]]; then _delayq "$@"; else compdef _delayq delayq; fi
`;

export const fish = `# Completes delayq in fish.
function __delayq_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    set -l reply ($program completion --words -- $words "$current" 2>/dev/null)
    switch "$reply[1]"
        case 'files*'
            set -l before (string replace -r '^files ' '' -- $reply[1])
            for path in (__fish_complete_path (string sub -s (math (string length -- "$before") + 1) -- "$current"))
                printf '%s\\n' "$before$path"
            end
        case 'command*'
            for i in (seq (string replace 'command ' '' -- $reply[1]))
                set -e words[1]
            end
            complete -C (string join ' ' -- (string escape -- $words) "$current")
        case '*'
            set -e reply[1]
            if set -q reply[1]
                printf '%s\\n' $reply
            end
    end
end
complete -c delayq -f -a '(__delayq_complete)'
`;
