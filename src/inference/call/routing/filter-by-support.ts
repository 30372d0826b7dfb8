import { GatewayError } from "../../../lib/errors.ts";
import type { Candidate, RoutePlan, UnsupportedFields } from "./plan-route.ts";

/** A required part of the request that a candidate does not support. */
export interface Barrier {
  /** A field, or a kind of content parts. */
  readonly name: string;
  /** The path of the part in the request. */
  readonly param: string;
}

export interface CandidateSupport extends UnsupportedFields {
  readonly barrier: Barrier | undefined;
}

/**
 * Returns the plan without the candidates that cannot serve the request, and with the unsupported fields of
 * the others. Throws 400 unsupported_parameter if no candidate is left.
 */
export function filterBySupport(
  plan: RoutePlan,
  supportOf: (candidate: Candidate) => CandidateSupport,
): RoutePlan {
  if (plan.candidates.length === 0) return plan;
  const candidates: Candidate[] = [];
  const unsupportedFields = new Map<Candidate, UnsupportedFields>();
  const barriers: Barrier[] = [];
  const skipped = [...(plan.skipped ?? [])];
  for (const candidate of plan.candidates) {
    const support = supportOf(candidate);
    if (support.barrier !== undefined) {
      barriers.push(support.barrier);
      skipped.push({
        baseEndpointId: candidate.baseEndpointId,
        reason: `lacks_${support.barrier.name}`,
      });
      continue;
    }
    candidates.push(candidate);
    if (support.leftOut.length > 0 || support.listed.length > 0)
      unsupportedFields.set(candidate, support);
  }
  if (candidates.length === 0) throw unsupported(barriers, plan);
  if (barriers.length === 0 && unsupportedFields.size === 0) return plan;
  const models = plan.models.filter((model) =>
    candidates.some((candidate) => candidate.model === model),
  );
  return {
    ...plan,
    models,
    candidates,
    skipped,
    ...(unsupportedFields.size > 0 && { unsupported: unsupportedFields }),
  };
}

const MAX_SHOWN_CHARACTERS = 100;

/** Returns an error with the field that most candidates do not support. */
function unsupported(barriers: readonly Barrier[], plan: RoutePlan): GatewayError {
  const count = (param: string) => barriers.filter((barrier) => barrier.param === param).length;
  const { name, param } = barriers.reduce((most, barrier) =>
    count(barrier.param) > count(most.param) ? barrier : most,
  );
  const models = plan.models.map(({ id }) => id).join(", ");
  const everywhere = count(param) === barriers.length;
  const path = JSON.stringify(param.slice(0, MAX_SHOWN_CHARACTERS));
  const shown = param.endsWith(name) ? path : `${name} (${path})`;
  const message = everywhere
    ? `${shown} is not supported by ${models} at any of its providers.`
    : `No provider of ${models} supports all fields of the request; most do not support ${shown}.`;
  return new GatewayError("unsupported_parameter", message, { param });
}
