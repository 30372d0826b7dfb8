import { Type } from "typebox";
import {
  type CostedBatch,
  findBatchObject,
  listBatchObjects,
} from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { type BatchStatus, isEnded } from "../../lib/batch.ts";
import { GatewayError } from "../../lib/errors.ts";
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { type FailedLines, readFailedLines } from "./failed-lines.ts";
import {
  auditedAct,
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

const STATES: Readonly<
  Record<"running" | "ended" | "failing", readonly BatchStatus[] | "failing">
> = {
  running: ["validating", "in_progress", "finalizing", "cancelling"],
  ended: ["completed", "failed", "expired", "cancelled"],
  failing: "failing",
};

const query = Type.Object(
  {
    state: Type.Optional(
      Type.Enum(["running", "ended", "failing"], {
        description: "failing: batches that failed or have failed lines",
      }),
    ),
    ...pageFields,
  },
  { additionalProperties: false },
);
const text = nullable(Type.String());
const batch = Type.Object({
  id: Type.String(),
  endpoint: Type.String(),
  status: Type.String(),
  models: nullable(Type.Array(Type.String(), { description: "At most 20" })),
  total: Type.Integer(),
  completed: Type.Integer(),
  failed: Type.Integer(),
  cost_usd: nullable(
    Type.Number({ description: "So far. Null if an earlier version counted some of the lines" }),
  ),
  key_id: Type.String(),
  input_file_id: Type.String(),
  output_file_id: text,
  error_file_id: text,
  faults: nullable(
    Type.Array(
      Type.Object({ code: Type.String(), message: Type.String(), line: nullable(Type.Integer()) }),
      {
        description: "Errors of the input. At most 100",
      },
    ),
  ),
  metadata: nullable(Type.Record(Type.String(), Type.String())),
  created_at: Type.String(),
  in_progress_at: time,
  ended_at: time,
  expires_at: Type.String(),
});
const failedLines = Type.Object({
  errors: Type.Array(Type.Object({ code: Type.String(), count: Type.Integer() })),
  counted: Type.Integer({ description: "Number of lines that `errors` counts" }),
  is_deleted: Type.Boolean({ description: "True if the error file was deleted" }),
  data: Type.Array(
    Type.Object({
      custom_id: text,
      status: nullable(Type.Integer()),
      code: text,
      message: text,
      request_id: text,
    }),
    { description: "The first 100" },
  ),
});
const MAX_MODELS = 20;
const MAX_FAULTS = 100;

/** Returns the routes of the page of batches. */
export function batchObjectRoutes(services: ObjectServices): RouteDefinition[] {
  const { sql, batches } = services;
  const path = `${OBJECTS}/batches`;
  const reading = sessionAccess("files:read");
  const found = async (context: RequestContext<unknown, unknown, { readonly id: string }>) => {
    const { organizationId } = context.caller.key;
    return shown(
      sql,
      context,
      await findBatchObject(sql, organizationId, context.params.id),
      notFound,
    );
  };
  return [
    route({
      method: "GET",
      path,
      tag,
      summary: "List batches",
      access: reading,
      query,
      responses: { 200: { description: "The batches, newest first", schema: listSchema(batch) } },
      async handle(context) {
        const { state } = context.query;
        const statuses = state && STATES[state];
        return listResponse(
          await listBatchObjects(sql, { ...pageIn(context), statuses }),
          batchShape,
        );
      },
    }),
    route({
      method: "GET",
      path: `${path}/:id`,
      tag,
      summary: "Get a batch",
      access: reading,
      responses: { 200: { description: "The batch", schema: batch } },
      handle: async (context) => jsonResponse(batchShape(await found(context))),
    }),
    route({
      method: "GET",
      path: `${path}/:id/failed_lines`,
      tag,
      summary: "List failed lines of a batch",
      access: reading,
      asksOtherServers: true,
      responses: { 200: { description: "The failed lines", schema: failedLines } },
      handle: async (context) =>
        jsonResponse(failedLinesShape(await readFailedLines(services, await found(context)))),
    }),
    route({
      method: "POST",
      path: `${path}/:id/cancel`,
      tag,
      summary: "Cancel a batch",
      access: sessionAccess("files:write"),
      responses: { 200: { description: "The batch is being cancelled", schema: done } },
      async handle(context) {
        const { id, organizationId } = await found(context);
        const act = { action: "batch.cancelled", id };
        await batches.cancel(organizationId, id, auditedAct(sql, context, act));
        return jsonResponse({ id });
      },
    }),
  ];
}

function notFound(): GatewayError {
  return new GatewayError("batch_not_found", "There is no such batch.");
}

function batchShape(record: CostedBatch) {
  const { id, endpoint, status, total, completed, failed, metadata } = record;
  // The files are announced before they are written.
  const areWritten = isEnded(status);
  return {
    ...{ id, endpoint, status, total, completed, failed, metadata },
    models: record.models?.slice(0, MAX_MODELS) ?? null,
    cost_usd: record.chargedNano === null ? null : usdNumber(record.chargedNano),
    key_id: record.keyId,
    input_file_id: record.inputFile,
    output_file_id: areWritten ? record.outputFile : null,
    error_file_id: areWritten ? record.errorFile : null,
    faults:
      record.faults
        ?.slice(0, MAX_FAULTS)
        .map(({ code, message, line }) => ({ code, message, line })) ?? null,
    created_at: isoTime(record.createdAtMs),
    in_progress_at: isoOrNull(record.inProgressAtMs),
    ended_at: isoOrNull(record.endedAtMs),
    expires_at: isoTime(record.expiresAtMs),
  };
}

function failedLinesShape({ lines, errors, counted, isDeleted }: FailedLines) {
  return {
    ...{ errors, counted, is_deleted: isDeleted },
    data: lines.map(({ customId, status, code, message, requestId }) => ({
      ...{ custom_id: customId, status, code, message, request_id: requestId },
    })),
  };
}
