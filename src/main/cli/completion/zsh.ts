import {
  type CompletedWord,
  type CompletionNode,
  functionName,
  quoted,
} from "./completion-tree.ts";

/** Returns the completion script for zsh: to be sourced, or stored as a file of $fpath. */
export function zshScript(program: string, nodes: readonly CompletionNode[]): string {
  const name = functionName(program);
  return `#compdef ${program}
${name}() {
  local line="\${(j: :)words[2,CURRENT-1]}" previous="\${words[CURRENT-1]}"
  local -a candidates
  case "$line" in
${nodes.map(branch).join("\n")}
  esac
  _describe -o ${quoted(program)} candidates
}
if [[ "\${funcstack[1]}" == _* ]]; then
  ${name} "$@"
else
  compdef ${name} ${program}
fi
`;
}

function branch({ line, isCommand, words, options, takesFile }: CompletionNode): string {
  const pattern = isCommand ? `${quoted(line)}|${quoted(`${line} `)}*` : quoted(line);
  const values = options
    .filter(({ takesValue }) => takesValue)
    .map(
      ({ word, choices }) => `        ${word}) candidates=(${choices.map(quoted).join(" ")}) ;;`,
    );
  const all = [...words, ...options].map(described).join(" ");
  const files = takesFile ? " _files;" : "";
  return `    ${pattern})
      case "$previous" in
${[...values, `        *) candidates=(${all});${files} ;;`].join("\n")}
      esac ;;`;
}

function described({ word, description }: CompletedWord): string {
  return quoted(`${word.replaceAll(":", "\\:")}:${description}`);
}
