import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { HoldRequest } from "./interface.ts";
import { exhaustedPeriods, type Headroom } from "./refusal.ts";

/**
 * Emits budget.exhausted for the periods whose spend alone refuses the request, once each. A failure keeps
 * no refusal from being told: the next one tries again.
 */
export async function tellExhausted(
  { keys, onBackgroundError }: { keys: ApiKeyActors; onBackgroundError(error: unknown): void },
  request: HoldRequest,
  headroom: Headroom,
): Promise<void> {
  const periods = exhaustedPeriods(headroom, request).map((period) => ({
    id: period.accountId,
    kind: period.kind,
    organizationId: request.organizationId,
    keyId: request.keyId,
    periodStart: period.periodStart,
  }));
  if (periods.length === 0) return;
  try {
    await keys.get(request.keyId).ask("exhausted", periods);
  } catch (error) {
    onBackgroundError(error);
  }
}
