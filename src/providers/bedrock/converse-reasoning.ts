import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import type { ConverseTraits } from "./model-traits.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Efforts that all of the fields know, by those that callers may name. */
const EFFORTS: Readonly<Record<string, string>> = {
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "high",
  max: "high",
};

/** The effort that `reasoning`, or else `reasoning_effort`, asks for; "none" to turn it off. */
function askedEffort({ reasoning, reasoning_effort: effort }: ChatRequestFields): unknown {
  if (!isFields(reasoning)) return effort;
  if (reasoning.enabled === false) return "none";
  const stated = reasoning.effort ?? effort;
  if (stated !== undefined && stated !== null) return stated;
  return reasoning.enabled === true || typeof reasoning.max_tokens === "number"
    ? "medium"
    : undefined;
}

/** Members of `additionalModelRequestFields` that ask for it; empty where there is nothing to ask. */
export function reasoningFields(fields: ChatRequestFields, traits: ConverseTraits): Fields {
  const asked = askedEffort(fields);
  const isKnown = typeof asked === "string" && Object.hasOwn(EFFORTS, asked);
  if (!isKnown || traits.reasoning === "none") return {};
  const effort = EFFORTS[asked];
  if (traits.reasoning === "effort") return { reasoning_effort: effort };
  if (traits.reasoning === "object") return { reasoning: { effort } };
  // At "high" Nova 2 takes no limit of the answer, and without one its cost has no bound.
  const maxReasoningEffort = effort === "high" ? "medium" : effort;
  return { reasoningConfig: { type: "enabled", maxReasoningEffort } };
}

/** Names of what of `reasoning` the model does not do; the whole field's where that is all of it. */
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

/** Whether the model does not do the effort exactly; the closest one is sent. */
export function unfollowedEffort(effort: unknown, { reasoning }: ConverseTraits): boolean {
  if (reasoning === "none") return true;
  if (effort === "none") return reasoning !== "config";
  return EFFORTS[String(effort)] !== effort || (reasoning === "config" && effort === "high");
}
