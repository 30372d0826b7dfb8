import { Type } from "typebox";
import {
  eventsBefore,
  type JobEvent,
  MAX_PROVIDER_EVENTS,
} from "../../../db/queries/fine-tuning-events.ts";
import { type CostedJob, findJobObject, listJobObjects } from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { JOB_STATUSES } from "../../lib/fine-tuning-job.ts";
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import {
  actOn,
  done,
  isoOrNull,
  listResponse,
  listSchema,
  OBJECTS,
  type ObjectServices,
  pageFields,
  pageIn,
  sessionAccess,
  shown,
  tag,
  time,
} from "./object-access.ts";

const query = Type.Object(
  { status: Type.Optional(Type.Enum([...JOB_STATUSES])), ...pageFields },
  { additionalProperties: false },
);
const text = nullable(Type.String());
const job = Type.Object({
  id: Type.String(),
  model: Type.String(),
  status: Type.String(),
  fine_tuned_model: text,
  error: nullable(Type.Object({ code: Type.String(), message: Type.String() })),
  trained_tokens: nullable(Type.Integer()),
  cost_usd: nullable(Type.Number({ description: "Null if nothing was charged" })),
  held_usd: Type.Number({ description: "Held until the job ends, at most its maximum cost" }),
  epochs: Type.Integer(),
  key_id: Type.String(),
  training_file: Type.String(),
  validation_file: text,
  result_file: text,
  metadata: nullable(Type.Record(Type.String(), Type.String())),
  created_at: Type.String(),
  running_since: time,
  estimated_finish: time,
  finished_at: time,
});
const jobEvents = Type.Object({
  data: Type.Array(
    Type.Object({
      id: Type.String(),
      level: Type.String(),
      message: Type.String(),
      created_at: Type.String(),
    }),
    { description: "The last 200 messages, newest first" },
  ),
  curve: Type.Array(
    Type.Object({
      step: Type.Number(),
      train_loss: nullable(Type.Number()),
      valid_loss: nullable(Type.Number()),
    }),
    { description: "The loss by step, at most 500 steps" },
  ),
});

const MAX_MESSAGES = 200;
const MAX_EVENTS = 2 * MAX_PROVIDER_EVENTS;
const MAX_STEPS = 500;

/** Returns the routes of the page of fine-tuning jobs. */
export function jobObjectRoutes({ sql, fineTuning }: ObjectServices): RouteDefinition[] {
  const path = `${OBJECTS}/fine_tuning_jobs`;
  const access = sessionAccess("fine_tuning");
  const found = async (context: RequestContext<unknown, unknown, { readonly id: string }>) => {
    const { organizationId } = context.caller.key;
    const record = await findJobObject(sql, organizationId, context.params.id);
    return shown(sql, context, record, notFound);
  };
  return [
    route({
      method: "GET",
      path,
      tag,
      summary: "List fine-tuning jobs",
      access,
      query,
      responses: { 200: { description: "The jobs, newest first", schema: listSchema(job) } },
      async handle(context) {
        const page = { ...pageIn(context), status: context.query.status };
        return listResponse(await listJobObjects(sql, page), jobShape);
      },
    }),
    route({
      method: "GET",
      path: `${path}/:id`,
      tag,
      summary: "Get a fine-tuning job",
      access,
      responses: { 200: { description: "The job", schema: job } },
      handle: async (context) => jsonResponse(jobShape(await found(context))),
    }),
    route({
      method: "GET",
      path: `${path}/:id/events`,
      tag,
      summary: "Get the messages and the curve of a fine-tuning job",
      access,
      responses: { 200: { description: "Messages and curve", schema: jobEvents } },
      async handle(context) {
        const { id, eventCount } = await found(context);
        const events = await eventsBefore(sql, id, eventCount + 1, MAX_EVENTS);
        return jsonResponse(eventsShape(events));
      },
    }),
    route({
      method: "POST",
      path: `${path}/:id/cancel`,
      tag,
      summary: "Cancel a fine-tuning job",
      access,
      responses: { 200: { description: "The job was cancelled", schema: done } },
      async handle(context) {
        const { id, organizationId } = await found(context);
        const recorded = actOn(context, { action: "fine_tuning_job.cancelled", id });
        await fineTuning.cancel(organizationId, id, { author: context.author, recorded });
        return jsonResponse({ id });
      },
    }),
  ];
}

function notFound(): GatewayError {
  return new GatewayError("job_not_found", "There is no such fine-tuning job.");
}

function jobShape(record: CostedJob) {
  const { id, status, error, metadata } = record;
  return {
    ...{ id, status, metadata, model: record.baseModel },
    fine_tuned_model: record.fineTunedModel,
    error: error && { code: error.code, message: error.message },
    trained_tokens: record.trainedTokens,
    cost_usd: record.chargedNano === null ? null : usdNumber(record.chargedNano),
    held_usd: usdNumber(record.finishedAtMs === null ? record.holdNano : 0n),
    epochs: record.hyperparameters.n_epochs,
    key_id: record.keyId,
    training_file: record.trainingFile,
    validation_file: record.validationFile,
    result_file: record.resultFile,
    created_at: isoTime(record.createdAtMs),
    running_since: isoOrNull(record.runningSinceMs),
    estimated_finish: isoOrNull(record.estimatedFinishMs),
    finished_at: isoOrNull(record.finishedAtMs),
  };
}

/** Returns the last messages, and the loss by step. */
function eventsShape(events: readonly JobEvent[]) {
  const messages = events.filter(({ type }) => type === "message").slice(0, MAX_MESSAGES);
  const steps = new Map(
    events
      .filter(({ type }) => type === "metrics")
      .map(({ data }) => [numberOrNull(data.step), data] as const),
  );
  const points = [...steps]
    .flatMap(([step, data]) => (step === null ? [] : [{ step, data }]))
    .toSorted((one, other) => one.step - other.step);
  const every = Math.ceil(points.length / MAX_STEPS);
  return {
    data: messages.map(({ id, level, message, createdAtMs }) => ({
      ...{ id, level, message, created_at: isoTime(createdAtMs) },
    })),
    curve: points
      .filter((_, index) => index % every === 0 || index === points.length - 1)
      .map(({ step, data }) => ({
        step,
        train_loss: numberOrNull(data.train_loss),
        valid_loss: numberOrNull(data.valid_loss),
      })),
  };
}

function numberOrNull(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
