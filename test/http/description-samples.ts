import Type from "typebox";
import type { RouteDefinition } from "../../src/http/route.ts";

const handle = (): Response => new Response();

const Key = Type.Object(
  {
    id: Type.String(),
    key_prefix: Type.String({ description: "Masked leading part of the key." }),
    name: Type.String(),
    scopes: Type.Array(Type.Union([Type.Literal("models:read"), Type.Literal("keys:manage")])),
    rate_limit_rpm: Type.Union([Type.Integer({ minimum: 1 }), Type.Null()]),
    daily_budget_usd: Type.Union([Type.Number({ minimum: 0 }), Type.Null()]),
    is_active: Type.Boolean(),
    created_at: Type.String({ format: "date-time" }),
  },
  { description: "An API key as lists show it." },
);

const Message = Type.Object({
  role: Type.Union([
    Type.Literal("system"),
    Type.Literal("user"),
    Type.Literal("assistant"),
    Type.Literal("tool"),
  ]),
  content: Type.Union([
    Type.String(),
    Type.Null(),
    Type.Array(Type.Object({ type: Type.String(), text: Type.Optional(Type.String()) })),
  ]),
});

const ChatBody = Type.Object({
  model: Type.Optional(Type.String({ description: "Ignored when models is given." })),
  messages: Type.Array(Message, { minItems: 1 }),
  temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 2 })),
  max_tokens: Type.Optional(Type.Union([Type.Integer({ minimum: 1 }), Type.Null()])),
  stop: Type.Optional(
    Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 4 }), Type.Null()]),
  ),
  logit_bias: Type.Optional(Type.Record(Type.String(), Type.Number())),
  tool_choice: Type.Optional(
    Type.Union([
      Type.Literal("none"),
      Type.Literal("auto"),
      Type.Literal("required"),
      Type.Object({
        type: Type.Literal("function"),
        function: Type.Object({ name: Type.String() }),
      }),
    ]),
  ),
  stream: Type.Optional(Type.Boolean({ default: false })),
  provider: Type.Optional(
    Type.Object({
      order: Type.Optional(Type.Array(Type.String())),
      allow_fallbacks: Type.Optional(Type.Boolean()),
    }),
  ),
});

const Completion = Type.Object({
  id: Type.String(),
  object: Type.Literal("chat.completion"),
  created: Type.Integer(),
  model: Type.String(),
  choices: Type.Array(
    Type.Object({
      index: Type.Integer(),
      message: Message,
      finish_reason: Type.Union([
        Type.Literal("stop"),
        Type.Literal("length"),
        Type.Literal("tool_calls"),
        Type.Literal("content_filter"),
      ]),
    }),
  ),
  usage: Type.Object({
    prompt_tokens: Type.Integer(),
    completion_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    cost: Type.Number({ description: "The charge in USD." }),
  }),
});

/** Routes of every kind that the description has to tell apart. */
export const SAMPLE_ROUTES: readonly RouteDefinition[] = [
  {
    method: "POST",
    path: "/v1/chat/completions",
    tag: "Chat",
    operationId: "chat.completions.create",
    summary: "Create a chat completion",
    access: { kind: "model", scope: "chat:completions" },
    body: ChatBody,
    allowsUnknownFields: true,
    responses: { 200: { description: "The completion, or a stream of it.", schema: Completion } },
    handle,
  },
  {
    method: "GET",
    path: "/v1/models",
    tag: "Models",
    operationId: "models.list",
    summary: "List models",
    access: { kind: "administration", scope: "models:read" },
    query: Type.Object({
      provider: Type.Optional(Type.String({ description: "Display name of a provider." })),
      active: Type.Optional(Type.Boolean({ default: true })),
    }),
    responses: {
      200: {
        description: "All models that match.",
        schema: Type.Object({ object: Type.Literal("list"), data: Type.Array(Type.Unknown()) }),
      },
    },
    handle,
  },
  {
    method: "GET",
    path: "/v1/models/*",
    tag: "Models",
    operationId: "models.retrieve",
    summary: "Retrieve a model",
    access: { kind: "administration", scope: "models:read" },
    responses: { 200: { description: "The model." }, 404: { description: "No such model" } },
    handle,
  },
  {
    method: "POST",
    path: "/v1/keys",
    tag: "API keys",
    operationId: "keys.create",
    summary: "Create a key",
    access: { kind: "administration", scope: "keys:manage" },
    body: Type.Object({
      name: Type.String({ minLength: 1, maxLength: 200 }),
      rate_limit_rpm: Type.Optional(Type.Integer({ minimum: 1 })),
    }),
    responses: {
      201: { description: "The key, whose secret is shown this once.", schema: Key },
      409: { description: "The organization has a key of this name" },
    },
    handle,
  },
  {
    method: "GET",
    path: "/v1/keys",
    tag: "API keys",
    operationId: "keys.list",
    summary: "List keys",
    access: { kind: "administration", scope: "keys:manage" },
    query: Type.Object({
      active: Type.Optional(Type.Boolean()),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, default: 50 })),
      sort: Type.String({ description: "A required one." }),
    }),
    responses: {
      200: {
        description: "A page of keys.",
        schema: Type.Object({ data: Type.Array(Key), total: Type.Integer() }),
      },
    },
    handle,
  },
  {
    method: "DELETE",
    path: "/v1/keys/:id",
    tag: "API keys",
    operationId: "keys.delete",
    summary: "Delete a key",
    access: { kind: "administration", scope: "keys:manage" },
    responses: {
      200: {
        description: "It is revoked for ever.",
        schema: Type.Object({ id: Type.String(), deleted: Type.Literal(true) }),
      },
    },
    handle,
  },
];
