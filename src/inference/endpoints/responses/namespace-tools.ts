import { isFields } from "../../../lib/json.ts";
import { functionOfTool } from "../../tools/mcp/tool-names.ts";
import { type Item, isOffered, type ResponsesBody, type Tool } from "./request.ts";

/**
 * The type of a group of functions with a common name. Codex offers the tools of each MCP server as such a
 * group.
 */
export const NAMESPACE = "namespace";

/** A tool of a namespace. A chat has a function for it. */
export interface NamespacedTool {
  readonly namespace: string;
  readonly name: string;
}

interface FlatTool extends NamespacedTool {
  /** The tool, with the name of its function. */
  readonly tool: Tool;
}

/**
 * The tools of a request's namespaces as functions of a chat. A function's name joins namespace and tool, in
 * the characters and the length that models allow. A name that is already used gets a hash, so that each
 * function has one tool. The names are equal in all turns that offer the same tools.
 */
export class NamespaceTools {
  /** Functions by name. */
  readonly functions: ReadonlyMap<string, FlatTool>;
  /** True if a namespace contains something other than functions and custom tools. */
  readonly hasUnsupportedTools: boolean;
  /** Names of functions by namespace and tool. */
  readonly #names = new Map<string, string>();

  constructor({ tools }: ResponsesBody) {
    const functions = new Map<string, FlatTool>();
    const usedNames = new Set((tools ?? []).filter(isOffered).map(({ name }) => name));
    let hasUnsupported = false;
    for (const { type, name: namespace, tools: inner } of tools ?? []) {
      if (type !== NAMESPACE) continue;
      const members: readonly unknown[] = Array.isArray(inner) ? inner : [];
      const supported = namespace === undefined ? [] : members.filter(isFlat);
      hasUnsupported ||= supported.length < members.length;
      for (const tool of supported) {
        const key = keyOf(namespace!, tool.name);
        if (this.#names.has(key)) continue;
        const name = freeName(
          namespace!,
          tool.name,
          (candidate) => usedNames.has(candidate),
          usedNames.size,
        );
        usedNames.add(name);
        this.#names.set(key, name);
        functions.set(name, { namespace: namespace!, name: tool.name, tool: { ...tool, name } });
      }
    }
    this.functions = functions;
    this.hasUnsupportedTools = hasUnsupported;
  }

  /** Returns the function name of a call in the conversation, whose tool might no longer be offered. */
  functionOf({ name, namespace }: Item): unknown {
    if (typeof namespace !== "string" || typeof name !== "string") return name;
    return this.#names.get(keyOf(namespace, name)) ?? plainName(namespace, name);
  }

  /** Returns the names of the functions of a namespace. */
  namesIn(namespace: string | undefined): string[] {
    const all = [...this.functions].filter(([, tool]) => tool.namespace === namespace);
    return all.map(([name]) => name);
  }
}

type NamedTool = Tool & { readonly name: string };

function isFlat(tool: unknown): tool is NamedTool {
  if (!isFields(tool) || typeof tool.name !== "string" || tool.name === "") return false;
  const { type, parameters, format } = tool;
  if (type === "custom") return format === undefined || format === null || isFields(format);
  return type === "function" && (!parameters || isFields(parameters));
}

function keyOf(namespace: string, name: string): string {
  return JSON.stringify([namespace, name]);
}

/** Returns the plain name of a function. Codex's namespaces already end with the separator. */
function plainName(namespace: string, name: string): string {
  return functionOfTool(namespace.replace(/_{1,64}$/, ""), name);
}

/**
 * Returns an unused name.
 *
 * @param count number of used names, so that names with the same hash differ
 */
function freeName(
  namespace: string,
  name: string,
  isUsed: (name: string) => boolean,
  count: number,
): string {
  let result = plainName(namespace, name);
  // No function name contains this character, so a hash is added.
  for (let at = count; isUsed(result); at++) result = functionOfTool(namespace, `${name}#${at}`);
  return result;
}
