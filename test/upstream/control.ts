import { steadyClock } from "../../src/lib/clock.ts";
import { type Behaviour, isBehaviourName } from "./behaviours.ts";
import type { TuningPlan } from "./fine-tuning.ts";
import { asArray, asObject, asText } from "./json.ts";
import type { BatchPlan } from "./planned-batches.ts";
import type { UpstreamState } from "./state.ts";
import { refusal } from "./wire.ts";

/**
 * `GET /__served` gives `{now_ms, totals, served}`, the time by the clock of its marks; `POST /__behave` takes
 * `{model, behaviour}` (null takes it back) or `{model, queue: [behaviour, …]}`; `GET /__tuning` gives the
 * trainings, `POST /__tuning` takes `{suffix, plan}`; `GET /__batches` gives the batches, `POST /__batches`
 * takes their plan, as do `/__message-batches`; `POST /__reset` forgets all. Anything else is refused with 400 or 404.
 */
export async function answerControl(
  state: UpstreamState,
  path: string,
  request: Request,
): Promise<Response> {
  const { ledger, plan } = state;
  switch (`${request.method} ${path}`) {
    case "GET /__served":
      return Response.json({
        now_ms: steadyClock.nowMs(),
        totals: ledger.totals(),
        served: ledger.list,
      });
    case "POST /__behave": {
      const body = asObject(await request.json().catch(() => null));
      const model = asText(body.model);
      const queue = asArray(body.queue);
      const standing = body.behaviour ?? null;
      if (![...queue, ...(standing === null ? [] : [standing])].every(isBehaviour)) {
        return refusal(400, "behaviours are objects whose member `do` is a known name");
      }
      if (queue.length > 0) plan.enqueue(model, ...queue.filter(isBehaviour));
      else plan.behave(model, isBehaviour(standing) ? standing : null);
      return Response.json({ ok: true });
    }
    case "GET /__tuning":
      return Response.json(state.tuning.records);
    case "POST /__tuning": {
      const body = asObject(await request.json().catch(() => null));
      state.tuning.plan(asText(body.suffix), asObject(body.plan) as TuningPlan);
      return Response.json({ ok: true });
    }
    case "GET /__batches":
      return Response.json(state.batches.records);
    case "POST /__batches":
      state.batches.plan(asObject(await request.json().catch(() => null)) as BatchPlan);
      return Response.json({ ok: true });
    case "GET /__message-batches":
      return Response.json(state.messageBatches.records);
    case "POST /__message-batches":
      state.messageBatches.plan(asObject(await request.json().catch(() => null)) as BatchPlan);
      return Response.json({ ok: true });
    case "POST /__reset":
      plan.reset();
      state.batches.reset();
      state.messageBatches.reset();
      state.tuning.reset();
      ledger.clear();
      return Response.json({ ok: true });
    default:
      return refusal(404, `no such control: ${request.method} ${path}`);
  }
}

function isBehaviour(value: unknown): value is Behaviour {
  return isBehaviourName(asObject(value).do);
}
