import { Type } from "typebox";

const toolCall = Type.Object({
  id: Type.String(),
  type: Type.Literal("function"),
  function: Type.Object({ name: Type.String(), arguments: Type.String() }),
});

/** With include_usage in a stream's last chunk, always in what is not streamed. */
const usage = Type.Object({
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  total_tokens: Type.Integer(),
  cost: Type.Number({ description: "USD" }),
});

/** OpenRouter's forms of reasoning.text, reasoning.summary and reasoning.encrypted. */
const reasoningDetails = Type.Array(
  Type.Object({ type: Type.String(), format: Type.Optional(Type.String()) }),
  { description: "To be sent back unchanged in the assistant's message" },
);

const finishReason = Type.Enum(["stop", "length", "tool_calls", "content_filter"]);

/** A chat completion (spec 2.4). Providers may send more. */
export const chatCompletion = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("chat.completion"),
    created: Type.Integer(),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        message: Type.Object({
          role: Type.Literal("assistant"),
          content: Type.Union([Type.String(), Type.Null()]),
          reasoning: Type.Optional(Type.String()),
          reasoning_details: Type.Optional(reasoningDetails),
          tool_calls: Type.Optional(Type.Array(toolCall)),
        }),
        finish_reason: finishReason,
      }),
    ),
    usage,
  },
  {
    examples: [
      {
        id: "chatcmpl-01a1fa3e313d71be83c131876b002a5c",
        object: "chat.completion",
        created: 1795199742,
        model: "sandbox/chat",
        choices: [
          {
            index: 0,
            message: { role: "assistant", content: "You said: Hello" },
            finish_reason: "stop",
          },
        ],
        usage: { prompt_tokens: 5, completion_tokens: 4, total_tokens: 9, cost: 0.000002184 },
      },
    ],
  },
);

/** A frame of the stream (spec 6.2): `data: ` and this, until `data: [DONE]`. */
export const chatCompletionChunk = Type.Object(
  {
    id: Type.String({ description: "The same in all chunks of a request" }),
    object: Type.Literal("chat.completion.chunk"),
    created: Type.Integer(),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        delta: Type.Object({
          role: Type.Optional(Type.Literal("assistant")),
          content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
          reasoning: Type.Optional(Type.String()),
          reasoning_details: Type.Optional(reasoningDetails),
          tool_calls: Type.Optional(
            Type.Array(
              Type.Object({
                index: Type.Integer(),
                id: Type.Optional(Type.String()),
                function: Type.Optional(
                  Type.Object({
                    name: Type.Optional(Type.String()),
                    arguments: Type.Optional(Type.String({ description: "A part of them" })),
                  }),
                ),
              }),
            ),
          ),
        }),
        finish_reason: Type.Union([finishReason, Type.Null()]),
      }),
      { description: "None in the chunk that brings the usage" },
    ),
    usage: Type.Optional(usage),
  },
  {
    description: "A frame is `data: ` and this; the last one is `data: [DONE]`.",
    examples: [
      {
        id: "chatcmpl-01a1fa3e313d71be83c131876b002a5c",
        object: "chat.completion.chunk",
        created: 1795199742,
        model: "sandbox/chat",
        choices: [{ index: 0, delta: { content: "You" }, finish_reason: null }],
      },
    ],
  },
);
