import { Type } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, nullable, optional, type RouteDefinition, route } from "../../http/route.ts";
import { BATCH_STATUSES, type BatchRecord, isEnded } from "../../lib/batch.ts";
import type { Batches } from "./batches.ts";

const ENDPOINTS = [
  "/v1/chat/completions",
  "/v1/embeddings",
  "/v1/moderations",
  "/v1/rerank",
  "/v1/responses",
] as const;
const COMPLETION_WINDOW = "24h";
const DEFAULT_PAGE = 20;
const MAX_PAGE = 100;
const MAX_METADATA = 16;

const createBody = Type.Object(
  {
    input_file_id: Type.String({
      minLength: 1,
      maxLength: 256,
      description: "Id of a file with the purpose batch.",
    }),
    endpoint: Type.Enum([...ENDPOINTS], {
      description: "The endpoint of all requests of the batch.",
    }),
    completion_window: Type.Literal(COMPLETION_WINDOW),
    metadata: optional(
      Type.Record(Type.String(), Type.String({ maxLength: 512 }), {
        maxProperties: MAX_METADATA,
        propertyNames: { minLength: 1, maxLength: 64 },
        description: "Stored with the batch.",
      }),
    ),
  },
  {
    additionalProperties: false,
  },
);

const pageQuery = Type.Object(
  {
    after: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description: "Id of the last batch of the previous page.",
      }),
    ),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
  },
  { additionalProperties: false },
);

const time = nullable(Type.Integer({ description: "Unix seconds." }));

const batchObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("batch"),
    endpoint: Type.String(),
    errors: nullable(
      Type.Object({
        object: Type.Literal("list"),
        data: Type.Array(
          Type.Object({
            code: Type.String(),
            message: Type.String(),
            line: nullable(Type.Integer()),
            param: nullable(Type.String()),
          }),
        ),
      }),
    ),
    input_file_id: Type.String(),
    completion_window: Type.Literal(COMPLETION_WINDOW),
    status: Type.Enum([...BATCH_STATUSES]),
    output_file_id: nullable(
      Type.String({ description: "Id of the file with the answered requests." }),
    ),
    error_file_id: nullable(
      Type.String({ description: "Id of the file with all other requests." }),
    ),
    created_at: Type.Integer({ description: "Unix seconds." }),
    in_progress_at: time,
    expires_at: time,
    finalizing_at: time,
    completed_at: time,
    failed_at: time,
    expired_at: time,
    cancelling_at: time,
    cancelled_at: time,
    request_counts: Type.Object({
      total: Type.Integer(),
      completed: Type.Integer(),
      failed: Type.Integer(),
    }),
    metadata: nullable(Type.Record(Type.String(), Type.String())),
  },
  { title: "Batch" },
);

const batchList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(batchObject),
    first_id: nullable(Type.String()),
    last_id: nullable(Type.String()),
    has_more: Type.Boolean(),
  },
  { title: "BatchList" },
);

const reading: Access = { kind: "storage", scope: "files:read" };
const writing: Access = { kind: "storage", scope: "files:write" };
const tag = "Batches";
const NOT_FOUND = { description: "There is no such batch." } as const;

/** Returns the batch routes, in OpenAI's form. */
export function batchRoutes(batches: Batches): RouteDefinition[] {
  const batch = { description: "The batch.", schema: batchObject };
  return [
    route({
      method: "POST",
      path: "/v1/batches",
      tag,
      operationId: "batches.create",
      summary: "Create batch",
      access: writing,
      body: createBody,
      responses: {
        200: batch,
        400: { description: "The file does not contain requests, or is too large." },
        403: { description: "The key is not allowed to call the endpoint." },
        404: { description: "There is no such file." },
      },
      async handle({ caller, body }) {
        const { input_file_id, endpoint, metadata = null } = body;
        const request = { endpoint, inputFile: input_file_id, metadata };
        return jsonResponse(batchShape(await batches.create(caller.key, request)));
      },
    }),
    route({
      method: "GET",
      path: "/v1/batches",
      tag,
      operationId: "batches.list",
      summary: "List batches",
      access: reading,
      query: pageQuery,
      responses: { 200: { description: "A page of batches, newest first.", schema: batchList } },
      async handle({ caller, query }) {
        const { after, limit = DEFAULT_PAGE } = query;
        const { organizationId } = caller.key;
        const { batches: page, hasMore } = await batches.list(organizationId, { after, limit });
        return jsonResponse({
          object: "list",
          data: page.map(batchShape),
          first_id: page[0]?.id ?? null,
          last_id: page.at(-1)?.id ?? null,
          has_more: hasMore,
        });
      },
    }),
    route({
      method: "GET",
      path: "/v1/batches/:id",
      tag,
      operationId: "batches.retrieve",
      summary: "Retrieve batch",
      access: reading,
      responses: { 200: batch, 404: NOT_FOUND },
      handle: async ({ caller, params }) =>
        jsonResponse(batchShape(await batches.find(caller.key.organizationId, params.id))),
    }),
    route({
      method: "POST",
      path: "/v1/batches/:id/cancel",
      tag,
      operationId: "batches.cancel",
      summary: "Cancel batch",
      access: writing,
      responses: {
        200: { ...batch, description: "The batch. Answered requests are stored and charged." },
        404: NOT_FOUND,
        409: { description: "The batch has ended." },
      },
      handle: async ({ caller, params }) =>
        jsonResponse(batchShape(await batches.cancel(caller.key.organizationId, params.id))),
    }),
  ];
}

/** Returns Unix seconds, or null if the event has not happened. */
function seconds(ms: number | null): number | null {
  return ms === null ? null : Math.floor(ms / 1_000);
}

function batchShape(batch: BatchRecord) {
  const { status, faults } = batch;
  const endedAs = (end: BatchRecord["status"]) =>
    status === end ? seconds(batch.endedAtMs) : null;
  // The files are announced before they are written.
  const areWritten = isEnded(status);
  return {
    id: batch.id,
    object: "batch",
    endpoint: batch.endpoint,
    errors: faults && { object: "list", data: faults },
    input_file_id: batch.inputFile,
    completion_window: COMPLETION_WINDOW,
    status,
    output_file_id: areWritten ? batch.outputFile : null,
    error_file_id: areWritten ? batch.errorFile : null,
    created_at: seconds(batch.createdAtMs),
    in_progress_at: seconds(batch.inProgressAtMs),
    expires_at: seconds(batch.expiresAtMs),
    finalizing_at: seconds(batch.finalizingAtMs),
    completed_at: endedAs("completed"),
    failed_at: endedAs("failed"),
    expired_at: endedAs("expired"),
    cancelling_at: seconds(batch.cancellingAtMs),
    cancelled_at: endedAs("cancelled"),
    request_counts: { total: batch.total, completed: batch.completed, failed: batch.failed },
    metadata: batch.metadata,
  };
}
