import { type TProperties, type TSchema, Type } from "typebox";
import type { StoredEntry } from "../../../db/queries/configuration.ts";
import { jsonResponse } from "../../http/error-response.ts";
import {
  type Access,
  nullable,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import type { ProviderHealth } from "../../inference/call/routing/provider-health.ts";
import type { LiveConfiguration } from "../../inference/models/live-configuration.ts";
import { nameInPath } from "../../inference/models/routes.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { ENTRY_SCHEMAS } from "../../platform/config/file-schema.ts";
import type { StoredKind } from "../../platform/config/stored.ts";
import type { HttpClient } from "../../providers/transport/provider-response.ts";
import { type ConfiguredEntry, effectiveEntries } from "./effective-entries.ts";
import { notFound, type StoredConfiguration } from "./stored-configuration.ts";
import { type ProviderTest, testModel, testProvider } from "./test-provider.ts";

export interface ConfigurationServices {
  readonly stored: StoredConfiguration;
  readonly live: LiveConfiguration;
  readonly httpClient: HttpClient;
  readonly health: ProviderHealth;
  readonly instanceId: string;
}

/** The parts that differ between the kinds of entries. */
interface Collection {
  readonly kind: StoredKind;
  readonly plural: string;
  readonly path: string;
  /** The path of one entry. Ids of models and aliases contain slashes. */
  readonly one: string;
  /** The parts of a model's id, for the second form of the path of tests. */
  readonly hasSlashes: boolean;
}

const COLLECTIONS: readonly Collection[] = [
  collection("provider", "providers", false),
  collection("model", "models", true),
  collection("alias", "aliases", true),
  collection("price", "prices", false),
];

function collection(kind: StoredKind, plural: string, hasSlashes: boolean): Collection {
  const path = `/v1/admin/${plural}`;
  return { kind, plural, path, one: `${path}/${hasSlashes ? "*" : ":id"}`, hasSlashes };
}

const access: Access = { kind: "operator" };
const common = { tag: "Configuration", access } as const;
const MAX_BODY_BYTES = 262_144;
const NOT_FOUND = { description: "There is no such entry." };
const CONFLICT = {
  description:
    "If-Match names another version (`version_conflict`), the entry is not stored (`read_only`), or it is in use (`in_use`, with `error.used_by`).",
};

/** Members that only the configuration file can have: names of variables and files of the machine, and old aliases. */
const ONLY_IN_FILE = ["api_key_env", "credentials_file", "alias_of"];

const entryShape = Type.Object(
  {
    id: Type.String(),
    source: Type.Enum(["environment", "file", "stored", "built_in", "provider_list"]),
    version: Type.Integer({
      description: "The version for If-Match. 0 for an entry that is not stored.",
    }),
    updated_at: nullable(Type.String({ format: "date-time" })),
  },
  {
    additionalProperties: true,
    description: "The members of the entry in the configuration file, without secrets, and these.",
    title: "ConfigurationEntry",
  },
);
const listShape = Type.Object({
  object: Type.Literal("list"),
  instance_id: Type.Optional(
    Type.String({
      description:
        "Of a list of providers: id of the instance that answers. The health is what it has observed.",
    }),
  ),
  data: Type.Array(entryShape),
  total: Type.Integer(),
});
const deletedShape = Type.Object({ id: Type.String(), deleted: Type.Literal(true) });
const testShape = Type.Object(
  {
    ok: Type.Boolean(),
    status: nullable(Type.Integer({ description: "HTTP status of the provider's last answer." })),
    latency_ms: Type.Integer(),
    sent: Type.Array(Type.String(), { description: "The requests that were sent." }),
    models: Type.Optional(Type.Array(Type.String())),
    message: Type.Optional(Type.String({ description: "Why the test has failed." })),
  },
  { title: "ProviderTest" },
);

/** Returns the routes with which operators configure the gateway while it runs (contract §13). */
export function configurationRoutes(services: ConfigurationServices): RouteDefinition[] {
  return COLLECTIONS.flatMap((one) => [
    listRoute(one, services),
    createRoute(one, services),
    ...(one.kind === "price" ? [] : [retrieveRoute(one, services), updateRoute(one, services)]),
    deleteRoute(one, services),
    ...(one.kind === "price" ? [] : testRoutes(one, services)),
  ]);
}

function listRoute({ kind, plural, path }: Collection, services: ConfigurationServices) {
  return route({
    ...common,
    method: "GET",
    path,
    operationId: `admin.${plural}.list`,
    summary: `List configured ${plural}`,
    description:
      kind === "provider"
        ? "Each instance observes the health of providers for itself."
        : `From all sources. Only a stored ${kind} can be changed.`,
    responses: { 200: { description: `The ${plural}.`, schema: listShape } },
    handle() {
      const data = entriesOf(kind, services).map(shapeOf);
      return jsonResponse({
        object: "list",
        ...(kind === "provider" && { instance_id: services.instanceId }),
        data,
        total: data.length,
      });
    },
  });
}

function createRoute({ kind, plural, path }: Collection, services: ConfigurationServices) {
  return route({
    ...common,
    method: "POST",
    path,
    operationId: `admin.${plural}.create`,
    summary: `Store a ${kind}`,
    description: `The ${kind} is in force on every instance within a second. It replaces one of the environment or the file with its id.`,
    maxBodyBytes: MAX_BODY_BYTES,
    asksOtherServers: true,
    body: Type.Object(storedMembers(kind), { additionalProperties: false }),
    responses: { 201: { description: `The ${kind}.`, schema: entryShape }, 409: CONFLICT },
    async handle(context) {
      const body = context.body as { readonly id: string };
      const entry = await services.stored.create(kind, body, context.author);
      return answer(services, entry, 201);
    },
  });
}

function retrieveRoute({ kind, plural, one }: Collection, services: ConfigurationServices) {
  return route({
    ...common,
    method: "GET",
    path: one,
    operationId: `admin.${plural}.retrieve`,
    summary: `Retrieve a configured ${kind}`,
    responses: { 200: { description: `The ${kind}.`, schema: entryShape }, 404: NOT_FOUND },
    handle(context) {
      const id = idOf(context);
      const entry = entriesOf(kind, services).find((other) => other.id === id);
      if (entry === undefined) throw notFound(kind, id);
      return shapeResponse(entry, 200);
    },
  });
}

function updateRoute({ kind, plural, one }: Collection, services: ConfigurationServices) {
  return route({
    ...common,
    method: "PATCH",
    path: one,
    operationId: `admin.${plural}.update`,
    summary: `Change a stored ${kind}`,
    description:
      'The header `If-Match: "<version>"` names the version that is changed. Null removes a member. Running requests keep what they were admitted with.',
    maxBodyBytes: MAX_BODY_BYTES,
    asksOtherServers: true,
    body: Type.Object(changedMembers(kind), { additionalProperties: false }),
    responses: {
      200: { description: `The ${kind}.`, schema: entryShape },
      404: NOT_FOUND,
      409: CONFLICT,
    },
    async handle(context) {
      const version = context.request.headers.get("if-match");
      const changes = context.body as Readonly<Record<string, unknown>>;
      const change = { version, changes };
      const entry = await services.stored.update(kind, idOf(context), change, context.author);
      return answer(services, entry, 200);
    },
  });
}

function deleteRoute({ kind, plural, one }: Collection, services: ConfigurationServices) {
  return route({
    ...common,
    method: "DELETE",
    path: one,
    operationId: `admin.${plural}.delete`,
    summary: `Delete a stored ${kind}`,
    description: 'The header `If-Match: "<version>"` names the version that is deleted.',
    responses: {
      200: { description: `The ${kind} was deleted.`, schema: deletedShape },
      404: NOT_FOUND,
      409: CONFLICT,
    },
    async handle(context) {
      const id = idOf(context);
      const version = context.request.headers.get("if-match");
      await services.stored.remove(kind, id, version, context.author);
      return jsonResponse({ id, deleted: true });
    },
  });
}

/** Returns the route of the test, and a second form of its path for ids with a slash that is not encoded. */
function testRoutes(
  { kind, plural, path, hasSlashes }: Collection,
  services: ConfigurationServices,
): RouteDefinition[] {
  const definition = {
    ...common,
    method: "POST",
    asksOtherServers: true,
    summary: `Test a ${kind}`,
    description:
      "Requests the model list of the provider. If a model is named, also sends it a chat with at most one token of output, which the provider may charge. The status is 200 even if the provider fails.",
    body: Type.Object(
      {
        model: Type.Optional(
          Type.String({
            minLength: 1,
            maxLength: 256,
            description: "For a provider: its name of a model to chat with.",
          }),
        ),
      },
      { additionalProperties: false },
    ),
    bodyIsOptional: true,
    responses: { 200: { description: "The result.", schema: testShape }, 404: NOT_FOUND },
  } as const;
  const test = async (id: string, body: unknown) => {
    const { model } = (body ?? {}) as { readonly model?: string };
    const result = await testOf(kind, services, id, model);
    if (result.ok && kind === "provider") await services.stored.noteAnswer(id);
    return jsonResponse(result);
  };
  return [
    route({
      ...definition,
      path: `${path}/:id/test`,
      operationId: `admin.${plural}.test`,
      handle: (context) => test(nameInPath(context.params.id), context.body),
    }),
    ...(hasSlashes
      ? [
          route({
            ...definition,
            path: `${path}/:id/:slug/test`,
            handle: ({ params, body }) =>
              test(`${nameInPath(params.id)}/${nameInPath(params.slug)}`, body),
          }),
        ]
      : []),
  ];
}

function testOf(
  kind: StoredKind,
  { live, httpClient }: ConfigurationServices,
  id: string,
  model: string | undefined,
): Promise<ProviderTest> {
  if (kind === "provider") return testProvider(live, httpClient, id, model);
  const alias = live.config.aliases.find((other) => other.id === id);
  const name = kind === "alias" ? alias?.models[0]?.id : id;
  const found = name === undefined ? undefined : live.views.all.resolve(name);
  if (found === undefined) throw notFound(kind, id);
  return testModel(live, httpClient, found);
}

function entriesOf(kind: StoredKind, { live, health }: ConfigurationServices): ConfiguredEntry[] {
  return effectiveEntries(kind, live, health);
}

function answer(services: ConfigurationServices, { kind, id }: StoredEntry, status: number) {
  const entry = entriesOf(kind, services).find((other) => other.id === id);
  if (entry === undefined) throw notFound(kind, id);
  return shapeResponse(entry, status);
}

function shapeResponse(entry: ConfiguredEntry, status: number): Response {
  const response = jsonResponse(shapeOf(entry), status);
  if (entry.version > 0) response.headers.set("etag", `"${entry.version}"`);
  return response;
}

function shapeOf({ updatedAtMs, ...entry }: ConfiguredEntry) {
  return { ...entry, updated_at: updatedAtMs === null ? null : isoTime(updatedAtMs) };
}

function idOf({ params }: Pick<RequestContext, "params">): string {
  return nameInPath(params["*"] ?? params.id ?? "");
}

/** Returns the members of a stored entry: those of the file, without the names of variables and files. */
function storedMembers(kind: StoredKind): TProperties {
  const members = Object.entries(ENTRY_SCHEMAS[kind].properties as TProperties);
  return Object.fromEntries(
    members.flatMap(([name, schema]) =>
      ONLY_IN_FILE.includes(name) ? [] : [[name, inSentences(withoutVariables(name, schema))]],
    ),
  );
}

/** Returns the schema with descriptions for the API. Those of the file complete "must be …". */
function inSentences<Schema>(schema: Schema): Schema {
  if (typeof schema !== "object" || schema === null) return schema;
  if (Array.isArray(schema)) return schema.map(inSentences) as Schema;
  // The copy keeps the hidden property that marks an optional member.
  const copy: Record<string, unknown> = Object.create(
    null,
    Object.getOwnPropertyDescriptors(schema),
  );
  for (const [name, member] of Object.entries(schema)) {
    const isText = name === "description" && typeof member === "string";
    copy[name] = isText ? `Must be ${member}.` : inSentences(member);
  }
  return copy as Schema;
}

function changedMembers(kind: StoredKind): TProperties {
  const required: readonly string[] = ENTRY_SCHEMAS[kind].required;
  return Object.fromEntries(
    Object.entries(storedMembers(kind)).flatMap(([name, schema]) => {
      if (name === "id") return [];
      const isNeeded = required.includes(name);
      return [[name, Type.Optional(isNeeded ? schema : nullable(schema))]];
    }),
  );
}

/** Returns the schema of keys without the members that name environment variables. */
function withoutVariables(name: string, schema: TSchema): TSchema {
  if (name === "aws") return Type.Optional(withoutNames(schema as never));
  if (name !== "api_keys") return schema;
  const { items, ...list } = schema as unknown as { items: TSchema } & TSchema;
  return Type.Optional(Type.Array(withoutNames(items as never), list));
}

function withoutNames({ properties, ...object }: { readonly properties: TProperties }): TSchema {
  const left = Object.entries(properties).filter(([name]) => !name.endsWith("_env"));
  return Type.Object(Object.fromEntries(left), object);
}
