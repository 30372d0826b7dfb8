import { Type } from "typebox";
import { UPLOAD_PURPOSES } from "../lib/file-record.ts";
import { MAX_LINE_BYTES } from "./json-lines-check.ts";

const MAX_LINE_MB = MAX_LINE_BYTES / 1024 / 1024;
const MAX_PAGE = 10_000;
const purposes = [...UPLOAD_PURPOSES];
const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);

export const uploadForm = Type.Object(
  {
    file: Type.String({
      format: "binary",
      description: `At most 512 MB, for vision 20 MB. fine-tune: JSONL in chat format; batch: JSONL of requests, each line of both at most ${MAX_LINE_MB} MB; vision: PNG, JPEG or WEBP of at most 16384 pixels a side.`,
    }),
    purpose: Type.Enum(purposes, { description: "In any order with the file." }),
  },
  { additionalProperties: false },
);

export const listFilesQuery = Type.Object(
  {
    purpose: Type.Optional(Type.Enum([...purposes, "fine-tune-results"])),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 100 })),
    order: Type.Optional(Type.Enum(["asc", "desc"], { default: "desc" })),
    after: Type.Optional(
      Type.String({
        // A UUIDv7: what was never an id of a file is no place in their list.
        pattern: "^file_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$",
        description: "Id of a file: the page begins behind it, though it be deleted.",
      }),
    ),
  },
  { additionalProperties: false },
);

export const linkQuery = Type.Object(
  {
    expires: Type.Integer({ minimum: 0, description: "Unix seconds." }),
    signature: Type.String({ pattern: "^[0-9a-f]{64}$" }),
  },
  { additionalProperties: false },
);

export const fileObject = Type.Object({
  id: Type.String(),
  object: Type.Literal("file"),
  bytes: Type.Integer(),
  filename: Type.String(),
  purpose: Type.Enum([...purposes, "fine-tune-results"]),
  created_at: Type.Integer({ description: "Unix seconds." }),
  expires_at: nullable(Type.Integer({ description: "Unix seconds; null: kept until deleted." })),
  status: Type.Enum(["uploaded", "processed", "error"]),
  status_details: nullable(Type.String()),
});

export const fileList = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(fileObject),
  first_id: nullable(Type.String()),
  last_id: nullable(Type.String()),
  has_more: Type.Boolean(),
});

export const deletedFile = Type.Object({
  id: Type.String(),
  object: Type.Literal("file"),
  deleted: Type.Literal(true),
});

export const downloadUrl = Type.Object({
  id: Type.String(),
  object: Type.Literal("file.download_url"),
  url: Type.String({ description: "Needs no API key." }),
  expires_at: Type.Integer({ description: "Unix seconds." }),
});
