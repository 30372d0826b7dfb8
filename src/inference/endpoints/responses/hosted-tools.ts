import { GatewayError } from "../../../lib/errors.ts";
import type { AddedMessage } from "../../tools/added-messages.ts";
import type { RequestTools, ToolOpening, ToolRegistry } from "../../tools/registry.ts";
import type { GatewayTool, ToolOutcome } from "../../tools/tool.ts";
import { DEFAULT_MAX_RUNS, MAX_RUNS_LIMIT } from "../../tools/tool-loop.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import type { HostedFacts } from "./request-facts.ts";

/** All tools of a request, after its servers have listed theirs. */
export interface OpenHosted {
  readonly tools: ReadonlyMap<string, GatewayTool>;
  /** The functions, as definitions for a chat call. */
  readonly definitions: readonly unknown[];
  /** Size of the definitions. */
  readonly size: PromptSize;
  /** Output items shown before the answer. */
  readonly items: readonly ToolOutcome["item"][];
  /** Messages after those of the request. */
  readonly messages: readonly AddedMessage[];
}

/** The tools of one request that the gateway runs. */
export class HostedTools {
  readonly maxRuns: number;
  /** The tools that the request alone determines, without those of servers. */
  readonly initial: OpenHosted;
  readonly #entries: readonly RequestTools[];
  readonly #offered: readonly string[];
  readonly #items: NonNullable<ToolOpening["items"]>;
  readonly #closing: (() => void)[] = [];
  #opened: Promise<OpenHosted> | undefined;
  #runsApproved = true;

  /** Throws 400 for invalid options, and an error if a required setting is missing. */
  constructor(facts: HostedFacts, registry: ToolRegistry) {
    const { tools, include, maxRuns = DEFAULT_MAX_RUNS, offered, items } = facts;
    const includes = new Set(include);
    this.maxRuns = Math.min(maxRuns, MAX_RUNS_LIMIT);
    this.#offered = offered;
    this.#items = items;
    this.#entries = tools.map(([at, tool]) =>
      registry.create(tool, { param: `tools.${at}`, include: includes }),
    );
    this.initial = this.#with([], [], []);
  }

  /**
   * Opens the tools once, however many providers are tried.
   *
   * @param runsApproved true to run the calls of remote tools that the caller has approved
   */
  open(
    opening: Omit<ToolOpening, "items">,
    { runsApproved }: { readonly runsApproved: boolean },
  ): Promise<OpenHosted> {
    if (this.#opened === undefined || this.#runsApproved !== runsApproved) {
      this.#runsApproved = runsApproved;
      this.#opened = this.#open({ ...opening, items: runsApproved ? this.#items : [] });
    }
    return this.#opened;
  }

  /** Closes the tools. Called when the response ends or a provider's attempt fails. */
  close(): void {
    for (const close of this.#closing) close();
  }

  async #open(opening: ToolOpening): Promise<OpenHosted> {
    const entries = this.#entries.map(async (entry) => {
      const more = await entry.open?.(opening);
      if (more?.close !== undefined) this.#closing.push(() => more.close!());
      return more;
    });
    const opened = await Promise.all(entries).catch((error) => {
      void Promise.allSettled(entries).then(() => this.close());
      throw error;
    });
    const tools = opened.flatMap((more) => more?.tools ?? []);
    const items = opened.flatMap((more) => more?.items ?? []);
    const messages = opened.flatMap((more) => more?.messages ?? []);
    const isKnown = tools.length + items.length + messages.length === 0;
    return isKnown ? this.initial : this.#with(tools, items, messages);
  }

  #with(
    opened: readonly GatewayTool[],
    items: OpenHosted["items"],
    messages: OpenHosted["messages"],
  ): OpenHosted {
    const all = [...this.#entries.flatMap(({ tools }) => tools), ...opened];
    const tools = new Map(all.map((tool) => [tool.name, tool]));
    const twice = all.find((tool) => tools.get(tool.name) !== tool)?.name;
    const duplicate = twice ?? this.#offered.find((name) => tools.has(name));
    if (duplicate !== undefined) throw sameName(duplicate);
    const definitions = all.map(definitionOf);
    const size = promptSize({ messages: [], tools: definitions });
    return { tools, definitions, size, items, messages };
  }
}

function definitionOf({ name, description, parameters }: GatewayTool) {
  return { type: "function", function: { name, description, parameters } };
}

function sameName(name: string): GatewayError {
  const message = `tools: several tools have the name ${JSON.stringify(name.slice(0, 100))}, by which the model calls them.`;
  return new GatewayError("invalid_body", message, { param: "tools" });
}

/** Returns the joined size of two parts of a prompt. */
export function bothSizes(left: PromptSize, right: PromptSize): PromptSize {
  return {
    bytes: left.bytes + right.bytes,
    messages: left.messages + right.messages,
    media: left.media + right.media,
    hasTools: left.hasTools || right.hasTools,
    longCacheLifetime: left.longCacheLifetime ?? right.longCacheLifetime,
  };
}
