import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ConverseTraits } from "./model-traits.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Efforts that every model's field supports, by the effort that the caller names. */
const EFFORTS: Readonly<Record<string, string>> = {
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "high",
  max: "high",
};

/** Returns the effort that `reasoning`, or else `reasoning_effort`, asks for. "none" turns reasoning off. */
function requestedEffort({ reasoning, reasoning_effort: effort }: ChatRequestFields): unknown {
  if (!isFields(reasoning)) return effort;
  if (reasoning.enabled === false) return "none";
  const stated = reasoning.effort ?? effort;
  if (stated !== undefined && stated !== null) return stated;
  return reasoning.enabled === true || typeof reasoning.max_tokens === "number"
    ? "medium"
    : undefined;
}

/**
 * Returns the members of `additionalModelRequestFields` that enable reasoning. Returns an empty object if the
 * request asks for none or the model has none.
 */
export function reasoningFields(fields: ChatRequestFields, traits: ConverseTraits): Fields {
  const requested = requestedEffort(fields);
  const isKnown = typeof requested === "string" && Object.hasOwn(EFFORTS, requested);
  if (!isKnown || traits.reasoning === "none") return {};
  const effort = EFFORTS[requested];
  if (traits.reasoning === "effort") return { reasoning_effort: effort };
  if (traits.reasoning === "object") return { reasoning: { effort } };
  // At "high" Nova 2 accepts no output limit, and without a limit the cost has no bound.
  const maxReasoningEffort = effort === "high" ? "medium" : effort;
  return { reasoningConfig: { type: "enabled", maxReasoningEffort } };
}

/**
 * Returns the members of `reasoning` that the model does not follow, or only "reasoning" if it follows none
 * of them.
 */
export function unfollowedReasoning(value: unknown, traits: ConverseTraits): readonly string[] {
  const members = Object.entries(value as Fields).filter(
    ([name, member]) => name !== "exclude" && member !== null,
  );
  if (members.length === 0) return [];
  if (traits.reasoning === "none") return ["reasoning"];
  return members
    .filter(([name, member]) => {
      if (name === "effort") return unfollowedEffort(member, traits);
      return name !== "enabled" || (member === false && traits.reasoning !== "config");
    })
    .map(([name]) => `reasoning.${name}`);
}

/** Returns true if the model does not have exactly this effort. The closest effort is sent instead. */
export function unfollowedEffort(effort: unknown, { reasoning }: ConverseTraits): boolean {
  if (reasoning === "none") return true;
  if (effort === "none") return reasoning !== "config";
  return EFFORTS[String(effort)] !== effort || (reasoning === "config" && effort === "high");
}
