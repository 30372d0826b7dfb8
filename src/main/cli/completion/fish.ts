import { type CompletionNode, functionName } from "./completion-tree.ts";

/** Returns the completion script for fish. */
export function fishScript(program: string, nodes: readonly CompletionNode[]): string {
  const name = functionName(program);
  return `# Completion of ${program} for fish.
function ${name}_at
    set -l line (string join ' ' -- (commandline -opc)[2..-1])
    if test "$line" = "$argv[1]"
        return 0
    end
    test "$argv[2]" = command; and string match -q -- "$argv[1] *" "$line"
end
complete -c ${program} -f
${nodes.flatMap((node) => lines(program, `${name}_at`, node)).join("\n")}
`;
}

function lines(program: string, condition: string, node: CompletionNode): string[] {
  const kind = node.isCommand ? " command" : "";
  const when = `complete -c ${program} -n ${quoted(`${condition} ${quoted(node.line)}${kind}`)}`;
  const words = node.words.map(
    ({ word, description }) => `${when} -a ${quoted(word)} -d ${quoted(description)}`,
  );
  const options = node.options.map(({ word, description, takesValue, choices }) => {
    const values = takesValue ? ` -x -a ${quoted(choices.join(" "))}` : "";
    return `${when} -l ${word.slice(2)}${values} -d ${quoted(description)}`;
  });
  return [...words, ...options, ...(node.takesFile ? [`${when} -F`] : [])];
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
