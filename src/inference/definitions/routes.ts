import { type TProperties, type TSchema, Type } from "typebox";
import type { DefinitionRecord } from "../../../db/queries/definitions.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, organizationOf, type RouteDefinition, route } from "../../http/route.ts";
import type { Scope } from "../../lib/api-key-record.ts";
import { isoTime } from "../../lib/utc-time.ts";
import type { DefinitionService } from "./definition-service.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The parts that differ between presets and guardrails. */
export interface DefinitionGroup {
  readonly path: string;
  readonly tag: string;
  readonly noun: string;
  readonly scope: Scope;
  /** The body's members besides its name. Members that a new definition needs are not optional. */
  readonly members: TProperties;
  readonly shape: TSchema;
  /** Returns the stored body. Throws 400 if a member is invalid. */
  bodyOf(stated: Fields, current?: Fields): Fields;
  /** Returns the members of the response besides id, name and times. */
  shapeOf(record: DefinitionRecord): Fields;
}

const MAX_BODY_BYTES = 262_144;
const name = Type.String({
  minLength: 1,
  maxLength: 128,
  pattern: "^[^\\x00-\\x1f\\x7f]+$",
  description: "Unique within the organization.",
});

/** Returns the routes of a collection of definitions that requests can name. */
export function definitionRoutes(
  definitions: DefinitionService,
  group: DefinitionGroup,
): RouteDefinition[] {
  const { path, tag, noun, scope, members, shape } = group;
  const access: Access = { kind: "administration", scope };
  const single = { description: `The ${noun}.`, schema: shape };
  const listed = Type.Object({ data: Type.Array(shape) });
  const deleted = Type.Object({ id: Type.String(), deleted: Type.Literal(true) });
  const answer = (record: DefinitionRecord, status = 200) =>
    jsonResponse(answerOf(group, record), status);
  return [
    route({
      method: "POST",
      path,
      tag,
      operationId: `${noun}s.create`,
      summary: `Create a ${noun}`,
      access,
      maxBodyBytes: MAX_BODY_BYTES,
      body: Type.Object({ name, ...members }, { additionalProperties: false }),
      responses: { 201: single },
      async handle(context) {
        const { name: given, ...stated } = context.body;
        const definition = { name: given, body: group.bodyOf(stated) };
        return answer(
          await definitions.create(organizationOf(context), definition, context.author),
          201,
        );
      },
    }),
    {
      method: "GET",
      path,
      tag,
      operationId: `${noun}s.list`,
      summary: `List the organization's ${noun}s`,
      access,
      responses: { 200: { description: `The ${noun}s, newest first.`, schema: listed } },
      async handle(context) {
        const records = await definitions.list(organizationOf(context));
        return jsonResponse({ data: records.map((record) => answerOf(group, record)) });
      },
    },
    route({
      method: "GET",
      path: `${path}/:id`,
      tag,
      operationId: `${noun}s.retrieve`,
      summary: `Retrieve a ${noun}`,
      access,
      responses: { 200: single },
      handle: async (context) =>
        answer(await definitions.find(organizationOf(context), context.params.id)),
    }),
    route({
      method: "PATCH",
      path: `${path}/:id`,
      tag,
      operationId: `${noun}s.update`,
      summary: `Change a ${noun}`,
      description: "The change applies to requests that begin at least a second later.",
      access,
      maxBodyBytes: MAX_BODY_BYTES,
      body: Type.Partial(Type.Object({ name, ...members }), {
        additionalProperties: false,
      }),
      responses: { 200: single },
      async handle(context) {
        const { name: given, ...stated } = context.body;
        const record = await definitions.change(
          organizationOf(context),
          context.params.id,
          (current) => ({
            name: given ?? current.name,
            body: group.bodyOf(stated, current.body),
          }),
          context.author,
        );
        return answer(record);
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id`,
      tag,
      operationId: `${noun}s.delete`,
      summary: `Delete a ${noun}`,
      access,
      responses: { 200: { description: `The ${noun} was deleted.`, schema: deleted } },
      async handle(context) {
        await definitions.remove(organizationOf(context), context.params.id, context.author);
        return jsonResponse({ id: context.params.id, deleted: true });
      },
    }),
  ];
}

function answerOf({ shapeOf }: DefinitionGroup, record: DefinitionRecord) {
  const { id, name: given, createdAtMs, updatedAtMs } = record;
  return {
    id,
    name: given,
    ...shapeOf(record),
    created_at: isoTime(createdAtMs),
    updated_at: isoTime(updatedAtMs),
  };
}
