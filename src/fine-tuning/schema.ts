import { Type } from "typebox";
import { JOB_STATUSES } from "../lib/fine-tuning-job.ts";

export const DEFAULT_PAGE = 20;
const MAX_PAGE = 100;
export const DEFAULT_EPOCHS = 3;
const MAX_EPOCHS = 50;
const MAX_BATCH_SIZE = 256;
const MAX_NAME_CHARACTERS = 256;
const MAX_SEED = 2_147_483_647;
const MAX_METADATA = 16;

const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);
const optional = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Optional(nullable(schema));
const auto = Type.Literal("auto");
const name = (description: string) =>
  Type.String({ minLength: 1, maxLength: MAX_NAME_CHARACTERS, description });

const hyperparameters = Type.Object(
  {
    n_epochs: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: MAX_EPOCHS }), auto], {
        default: "auto",
        description: `auto means ${DEFAULT_EPOCHS}`,
      }),
    ),
    batch_size: Type.Optional(
      Type.Union([Type.Integer({ minimum: 1, maximum: MAX_BATCH_SIZE }), auto], {
        default: "auto",
      }),
    ),
    learning_rate_multiplier: Type.Optional(
      Type.Union([Type.Number({ exclusiveMinimum: 0, maximum: 1000 }), auto], {
        default: "auto",
      }),
    ),
  },
  { additionalProperties: false },
);

export const createJobBody = Type.Object(
  {
    model: name("Base model; with its dated suffix, where it has one"),
    training_file: name("Id of a file with the purpose fine-tune"),
    validation_file: optional(name("Id of a file with the purpose fine-tune")),
    hyperparameters: optional(hyperparameters),
    method: optional(
      Type.Object(
        {
          type: Type.Literal("supervised"),
          supervised: Type.Optional(
            Type.Object(
              { hyperparameters: Type.Optional(hyperparameters) },
              { additionalProperties: false },
            ),
          ),
        },
        { additionalProperties: false, description: "Another place for the hyperparameters" },
      ),
    ),
    suffix: optional(
      Type.String({
        pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description: "Becomes part of the fine-tuned model's id; 1 to 64 letters, digits, . _ -",
      }),
    ),
    seed: optional(Type.Integer({ minimum: 0, maximum: MAX_SEED })),
    metadata: optional(
      Type.Record(Type.String(), Type.String({ maxLength: 512 }), {
        maxProperties: MAX_METADATA,
        // The length of a record's key type is not looked at.
        propertyNames: { minLength: 1, maxLength: 64 },
        description: "Kept with the job",
      }),
    ),
  },
  {
    additionalProperties: false,
    examples: [
      {
        model: "sandbox/chat-2026-01-01",
        training_file: "file_0192f0c1",
        hyperparameters: { n_epochs: 2 },
        suffix: "support",
      },
    ],
  },
);

const page = {
  after: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: MAX_NAME_CHARACTERS,
      description: "Id of the last one of the page before",
    }),
  ),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
};

export const pageQuery = Type.Object(page, { additionalProperties: false });

const unixSeconds = Type.Integer({ description: "Unix seconds" });

export const job = Type.Object({
  id: Type.String(),
  object: Type.Literal("fine_tuning.job"),
  model: Type.String({ description: "Base model" }),
  created_at: unixSeconds,
  finished_at: nullable(unixSeconds),
  status: Type.Enum([...JOB_STATUSES]),
  training_file: Type.String(),
  validation_file: nullable(Type.String()),
  hyperparameters: Type.Object({
    n_epochs: Type.Integer(),
    batch_size: Type.Union([Type.Integer(), auto]),
    learning_rate_multiplier: Type.Union([Type.Number(), auto]),
  }),
  fine_tuned_model: nullable(
    Type.String({ description: "Once it has succeeded: a model for chat completions" }),
  ),
  estimated_finish: nullable(unixSeconds),
  error: nullable(
    Type.Object({
      code: Type.String(),
      message: Type.String(),
      param: nullable(Type.String()),
    }),
  ),
  trained_tokens: nullable(
    Type.Integer({ description: "Those that were billed, over all epochs" }),
  ),
  organization_id: Type.String(),
  result_files: Type.Array(Type.String()),
  seed: Type.Integer(),
  suffix: nullable(Type.String()),
  metadata: nullable(Type.Record(Type.String(), Type.String())),
});

export const jobList = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(job),
  has_more: Type.Boolean(),
});

export const jobEvent = Type.Object({
  object: Type.Literal("fine_tuning.job.event"),
  id: Type.String(),
  created_at: unixSeconds,
  level: Type.Enum(["info", "warn", "error"]),
  message: Type.String(),
  type: Type.Enum(["message", "metrics"]),
  data: Type.Record(Type.String(), Type.Unknown()),
});

export const eventList = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(jobEvent),
  has_more: Type.Boolean(),
});
