import { isFields } from "../../../lib/json.ts";
import { functionOfTool } from "../../tools/mcp/tool-names.ts";
import { type Item, isOffered, type ResponsesBody, type Tool } from "./request.ts";

/** The type of a group of functions with a common name, as Codex offers the tools of each MCP server. */
export const NAMESPACE = "namespace";

/** A tool of a namespace: a chat has a function in its place. */
export interface NamespacedTool {
  readonly namespace: string;
  readonly name: string;
}

interface FlatTool extends NamespacedTool {
  /** The tool under the name of its function. */
  readonly tool: Tool;
}

/**
 * The tools of a request's namespaces as functions of a chat. Their names join those of namespace and tool, within the
 * characters and the length that models allow. A name that is taken gets a hash, so that each function stands for one
 * tool; it is the same in all turns that offer the same tools.
 */
export class NamespaceTools {
  /** By the name of the function. */
  readonly functions: ReadonlyMap<string, FlatTool>;
  /** Whether a namespace holds something else than functions and custom tools. */
  readonly lacksSome: boolean;
  /** Names of functions, by namespace and tool. */
  readonly #names = new Map<string, string>();

  constructor({ tools }: ResponsesBody) {
    const functions = new Map<string, FlatTool>();
    const taken = new Set((tools ?? []).filter(isOffered).map(({ name }) => name));
    let lacksSome = false;
    for (const { type, name: namespace, tools: inner } of tools ?? []) {
      if (type !== NAMESPACE) continue;
      const members: readonly unknown[] = Array.isArray(inner) ? inner : [];
      const known = namespace === undefined ? [] : members.filter(isFlat);
      lacksSome ||= known.length < members.length;
      for (const tool of known) {
        const key = keyOf(namespace!, tool.name);
        if (this.#names.has(key)) continue;
        const name = freeName(namespace!, tool.name, (one) => taken.has(one), taken.size);
        taken.add(name);
        this.#names.set(key, name);
        functions.set(name, { namespace: namespace!, name: tool.name, tool: { ...tool, name } });
      }
    }
    this.functions = functions;
    this.lacksSome = lacksSome;
  }

  /** The function of a call in the conversation, whose tool may no longer be offered. */
  functionOf({ name, namespace }: Item): unknown {
    if (typeof namespace !== "string" || typeof name !== "string") return name;
    return this.#names.get(keyOf(namespace, name)) ?? plainName(namespace, name);
  }

  /** The functions of a namespace. */
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

/** Codex's namespaces end with the mark that stands between the names anyway. */
function plainName(namespace: string, name: string): string {
  return functionOfTool(namespace.replace(/_{1,64}$/, ""), name);
}

/** @param count of the names that are taken, so that names with the same hash get different ones */
function freeName(
  namespace: string,
  name: string,
  isTaken: (name: string) => boolean,
  count: number,
): string {
  let found = plainName(namespace, name);
  // No name of a function has this character, so a hash is added.
  for (let at = count; isTaken(found); at++) found = functionOfTool(namespace, `${name}#${at}`);
  return found;
}
