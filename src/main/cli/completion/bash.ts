import { type CompletionNode, functionName, quoted } from "./completion-tree.ts";

/** Adds each file as one word, also if its name has spaces. */
const FILES =
  'while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$current")';

/** Returns the completion script for bash, from version 3.2. */
export function bashScript(program: string, nodes: readonly CompletionNode[]): string {
  const name = functionName(program);
  return `# Completion of ${program} for bash.
${name}() {
  local IFS=$' \\t\\n'
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}"
  local file line="\${COMP_WORDS[*]:1:COMP_CWORD-1}" candidates=""
  COMPREPLY=()
  case "$line" in
${nodes.map(branch).join("\n")}
  esac
  COMPREPLY+=($(compgen -W "$candidates" -- "$current"))
}
complete -o filenames -F ${name} ${program}
`;
}

function branch({ line, isCommand, words, options, takesFile }: CompletionNode): string {
  const pattern = isCommand ? `${quoted(line)}|${quoted(`${line} `)}*` : quoted(line);
  const names = [...words, ...options].map(({ word }) => word).join(" ");
  const values = options
    .filter(({ takesValue }) => takesValue)
    .map(({ word, choices }) => `        ${word}) candidates=${quoted(choices.join(" "))} ;;`);
  const files = takesFile ? ` ${FILES};` : "";
  return `    ${pattern})
      case "$previous" in
${[...values, `        *) candidates=${quoted(names)};${files} ;;`].join("\n")}
      esac ;;`;
}
