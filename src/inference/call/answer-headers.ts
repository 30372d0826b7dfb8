import { usdText } from "../../lib/money.ts";
import { type AdmittedCall, sentLimit } from "./call.ts";
import type { MeteredFigures } from "./call-charge.ts";
import type { AcceptedRequest } from "./endpoint.ts";
import type { Failover } from "./routing/call-candidates.ts";
import type { Candidate, RoutePlan } from "./routing/plan-route.ts";

type Call = AdmittedCall<AcceptedRequest>;

/** What became of the plan's candidates. */
type Tries = Pick<Failover, "trail" | "postponed" | "full" | "left">;

const DROPPED_PARAMETERS = "x-gateway-dropped-parameters";
const TRANSFORMS = "x-gateway-transforms";
const MAX_HEADER_CHARACTERS = 2_000;

/**
 * Headers of an answer: the rate window, what the hold was lowered to, what was left out and, once that is
 * known, who serves it and how the call was routed.
 */
export function answerHeaders(
  call: Call,
  candidate: Candidate | undefined,
  tries: Tries,
): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name in call.log.headers) headers[name] = call.log.headers[name]!;
  const { hold, tokens } = call;
  if (hold.isLowered || tokens?.outputLimit !== undefined) {
    const sent = candidate === undefined ? hold.outputTokens : sentLimit(call, candidate);
    if (sent !== undefined) headers["x-gateway-max-tokens"] = String(sent);
  }
  const dropped = droppedParameters(call.plan, candidate);
  if (dropped.length > 0) headers[DROPPED_PARAMETERS] = headerText(dropped.join(", "));
  const { transformed } = call.plan;
  const isTransformed = candidate === undefined ? transformed?.size : transformed?.has(candidate);
  if (isTransformed) {
    headers[TRANSFORMS] = "middle-out";
  }
  if (candidate === undefined) return headers;
  headers["x-gateway-provider"] = candidate.providerId;
  headers["x-gateway-model"] = candidate.model.id;
  explain(headers, call, tries);
  return headers;
}

/** Headers of an answer to a call that has not been tried. */
export function admittedHeaders(call: Call): Record<string, string> {
  return answerHeaders(call, undefined, UNTRIED);
}

const UNTRIED: Tries = { trail: [], postponed: [], full: [], left: [] };

/** Those of an answer that say how its provider was asked, which hold for each request that gets it. */
export function headersOfAsking(
  headers: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const names = [DROPPED_PARAMETERS, TRANSFORMS].filter((name) => headers[name] !== undefined);
  return Object.fromEntries(names.map((name) => [name, headers[name]!]));
}

/** Adds those of an answer that the response cache had: of who made it, and how that was asked. */
export function addHitHeaders(
  headers: Record<string, string>,
  call: Call,
  figures: MeteredFigures,
  ofAsking: Readonly<Record<string, string>>,
): void {
  for (const name in call.log.headers) headers[name] = call.log.headers[name]!;
  Object.assign(headers, ofAsking);
  headers["x-gateway-provider"] = figures.provider;
  headers["x-gateway-model"] = figures.model;
  addChargeHeaders(headers, figures);
}

/** Adds what the charge of a whole answer tells. */
export function addChargeHeaders(headers: Record<string, string>, figures: MeteredFigures): void {
  headers["x-gateway-latency-ms"] = String(figures.latencyMs);
  addCostHeader(headers, figures);
}

export function addCostHeader(
  headers: Record<string, string>,
  { chargeNano }: Pick<MeteredFigures, "chargeNano">,
): void {
  headers["x-gateway-cost"] = usdText(chargeNano);
}

/** Reports what was tried, or was full, with the error that the call ends with, where the caller asked for that. */
export function explainFailure(call: Call, tries: Tries): void {
  if (tries.trail.length === 0 && tries.full.length === 0) return;
  const headers = { ...call.log.headers };
  explain(headers, call, tries);
  call.log.headers = headers;
}

/**
 * What the candidate does not get. A stream that opens while its provider is still silent cannot know which
 * one will serve it: then whatever any of them lacks, so that nothing is dropped in silence.
 */
function droppedParameters(plan: RoutePlan, candidate: Candidate | undefined): readonly string[] {
  if (plan.lacked === undefined) return [];
  if (candidate !== undefined) return plan.lacked.get(candidate)?.listed ?? [];
  return [...new Set([...plan.lacked.values()].flatMap(({ listed }) => listed))];
}

function explain(
  headers: Record<string, string>,
  { explainsRoute, plan }: Call,
  tries: Tries,
): void {
  if (!explainsRoute) return;
  const { candidates, sortedBy, skipped = [] } = plan;
  const parts: [string, readonly string[]][] = [
    ["planned", candidates.map(({ endpointId }) => endpointId)],
    ["tried", tries.trail],
    ["sorted by", sortedBy === undefined ? [] : [sortedBy]],
    ["unhealthy", tries.postponed],
    ["full", tries.full],
    ["not needed", tries.left],
    ["skipped", skipped.map(({ placeId, reason }) => `${placeId}=${reason}`)],
  ];
  const told = parts.filter(([, list], at) => at < 2 || list.length > 0);
  headers["x-gateway-route-explain"] = headerText(
    told.map(([name, list]) => `${name}: ${list.join(", ")}`).join("; "),
  );
}

/** Names come from configurations and may hold any character; a header may not. */
function headerText(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, "?").slice(0, MAX_HEADER_CHARACTERS);
}
