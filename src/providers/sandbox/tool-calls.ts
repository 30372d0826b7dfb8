import type { SandboxRequest, SandboxTool } from "./request.ts";
import { argumentsOf } from "./schema-example.ts";

/** How much of the user's message is searched for names of tools. */
const MAX_SEARCHED_CHARACTERS = 65_536;

/** Each call's arguments are work. */
const MAX_CALLED_TOOLS = 16;

export interface SandboxToolCall {
  readonly name: string;
  /** JSON that satisfies the tool's schema. */
  readonly arguments: string;
}

/**
 * The tool calls that answer a request, the same in all its choices.
 *
 * With `tool_choice` a function, that function; with `required`, at least one; with `auto`, only if
 * no tool message came after the last user message. Which ones: those that the last user message
 * names, in the order offered, or the first; no more than one if `parallel_tool_calls` is false. With
 * `allowed_tools`, only these are offered.
 */
export function toolCallsFor(request: SandboxRequest): SandboxToolCall[] {
  return chosenTools(request).map((tool) => ({
    name: tool.name,
    arguments: JSON.stringify(argumentsOf(tool.parameters)),
  }));
}

function chosenTools(request: SandboxRequest): SandboxTool[] {
  const { tools, toolChoice, messages } = request;
  if (toolChoice.kind === "none" || tools.length === 0) return [];
  if (toolChoice.kind === "function") {
    return tools.filter((tool) => tool.name === toolChoice.name).slice(0, 1);
  }
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const isAnswered = messages.slice(lastUser + 1).some((message) => message.role === "tool");
  if (toolChoice.kind === "auto" && isAnswered) return [];
  const said = lastUser === -1 ? "" : messages[lastUser]!.text.slice(0, MAX_SEARCHED_CHARACTERS);
  const named = tools.filter((tool) => said.includes(tool.name));
  if (named.length === 0) return tools.slice(0, 1);
  return named.slice(0, request.parallelToolCalls ? MAX_CALLED_TOOLS : 1);
}
