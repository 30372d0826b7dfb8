import { bytes } from "../format.ts";
import type { ListedModel } from "../models/catalogue.ts";

/** A file that goes with a message. */
export interface Attachment {
  readonly kind: "image" | "file" | "audio";
  readonly name: string;
  readonly type: string;
  /** Base64. Empty if the history did not keep it. */
  readonly data: string;
}

const MEBIBYTE = 1_048_576;
const MAX_FILE_BYTES = 10 * MEBIBYTE;
/** Most bytes of one message. The browser holds them in memory, and each model gets them again with each turn. */
const MAX_TOTAL_BYTES = 20 * MEBIBYTE;
const MAX_FILES = 10;
const BASE64_BYTES = 3 / 4;

const TYPES: Readonly<Record<string, Attachment["kind"]>> = {
  ...{ "image/png": "image", "image/jpeg": "image", "image/webp": "image", "image/gif": "image" },
  "application/pdf": "file",
  ...{ "audio/mpeg": "audio", "audio/mp3": "audio", "audio/wav": "audio", "audio/x-wav": "audio" },
  "audio/wave": "audio",
};
const TITLES = { image: "images", file: "PDF files", audio: "sound" } as const;

/** Returns the kinds of files that all the models take. */
export function acceptedKinds(
  models: readonly (ListedModel | undefined)[],
): readonly Attachment["kind"][] {
  if (models.length === 0) return [];
  return (["image", "file", "audio"] as const).filter((kind) =>
    models.every((model) => model?.architecture.input_modalities.includes(kind)),
  );
}

/** Returns the value of a file input that offers files of these kinds. */
export function acceptOf(kinds: readonly Attachment["kind"][]): string {
  return Object.keys(TYPES)
    .filter((type) => kinds.includes(TYPES[type]!))
    .join(",");
}

export interface ReadFiles {
  readonly attachments: readonly Attachment[];
  /** Why files were left out, one a file. */
  readonly faults: readonly string[];
}

/** Reads files that the models take, and says why others are left out. */
export async function readFiles(
  files: readonly File[],
  kinds: readonly Attachment["kind"][],
  present: readonly Attachment[],
): Promise<ReadFiles> {
  const attachments: Attachment[] = [];
  const faults: string[] = [];
  let total = present.reduce((sum, { data }) => sum + data.length * BASE64_BYTES, 0);
  for (const file of files) {
    const kind = TYPES[file.type];
    const fault = faultOf(file, kind, kinds, total, present.length + attachments.length);
    if (fault !== undefined) {
      faults.push(`${file.name || "The file"} ${fault}`);
      continue;
    }
    total += file.size;
    const data = await base64Of(file).catch(() => undefined);
    if (data === undefined) faults.push(`${file.name} cannot be read.`);
    else attachments.push({ kind: kind!, name: file.name || kind!, type: file.type, data });
  }
  return { attachments, faults };
}

function faultOf(
  { size, type }: File,
  kind: Attachment["kind"] | undefined,
  kinds: readonly Attachment["kind"][],
  total: number,
  count: number,
): string | undefined {
  if (kind === undefined) return `has a type that cannot be attached (${type || "unknown"}).`;
  if (!kinds.includes(kind))
    return `cannot be attached: the chosen models take no ${TITLES[kind]}.`;
  if (size === 0) return "is empty.";
  if (size > MAX_FILE_BYTES) {
    return `has ${bytes(size)}. A file can have at most ${bytes(MAX_FILE_BYTES)}.`;
  }
  if (count >= MAX_FILES) return `is left out: a message can have at most ${MAX_FILES} files.`;
  if (total + size > MAX_TOTAL_BYTES) {
    return `is left out: the files of a message can have at most ${bytes(MAX_TOTAL_BYTES)}.`;
  }
  return undefined;
}

function base64Of(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve((reader.result as string).split(",")[1] ?? "");
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

export const dataUrl = ({ type, data }: Attachment) => `data:${type};base64,${data}`;

/** Returns the content of a message: its text, or parts if it has files. */
export function contentOf(text: string, attachments: readonly Attachment[]): string | object[] {
  const present = attachments.filter(({ data }) => data !== "");
  if (present.length === 0) return text;
  return [...(text === "" ? [] : [{ type: "text", text }]), ...present.map(partOf)];
}

function partOf(attachment: Attachment): object {
  const { kind, name, type, data } = attachment;
  if (kind === "image") return { type: "image_url", image_url: { url: dataUrl(attachment) } };
  if (kind === "file") {
    return { type: "file", file: { filename: name, file_data: dataUrl(attachment) } };
  }
  const format = type.includes("wav") ? "wav" : "mp3";
  return { type: "input_audio", input_audio: { data, format } };
}
