import { type FormFile, streamOf } from "./multipart-upload.ts";

/** Placeholder in a JSON body for the base64 of a file, after a prefix such as the head of a data URL. */
export class FileInJson {
  readonly file: FormFile;
  readonly prefix: string;

  constructor(file: FormFile, prefix = "") {
    this.file = file;
    this.prefix = prefix;
  }

  static asDataUrl(file: FormFile): FileInJson {
    return new FileInJson(file, `data:${file.contentType};base64,`);
  }
}

/**
 * Returns the JSON of a body. If the body contains files, returns a stream that is built while it is sent. Files of any
 * size then take no memory, and no piece blocks the event loop.
 */
export function jsonWithFiles(body: object): string | ReadableStream<Uint8Array> {
  const files: FileInJson[] = [];
  // The mark is random, so no text of the request contains it.
  const mark = `file-${crypto.randomUUID()}`;
  const text = JSON.stringify(body, (_name, value: unknown) => {
    if (!(value instanceof FileInJson)) return value;
    files.push(value);
    return mark;
  });
  return files.length === 0 ? text : streamOf(piecesOf(text.split(mark), files));
}

async function* piecesOf(
  texts: readonly string[],
  files: readonly FileInJson[],
): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for (const [at, text] of texts.entries()) {
    const { file, prefix } = files[at] ?? {};
    const escaped = prefix === undefined ? "" : JSON.stringify(prefix).slice(1, -1);
    yield encoder.encode(text + escaped);
    if (file !== undefined) yield* base64Of(file.stream());
  }
}

const GROUP_BYTES = 3;

async function* base64Of(bytes: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of bytes) {
    const joined = rest.length === 0 ? Buffer.from(piece) : Buffer.concat([rest, piece]);
    const whole = joined.length - (joined.length % GROUP_BYTES);
    yield Buffer.from(joined.toString("base64", 0, whole), "latin1");
    rest = Buffer.from(joined.subarray(whole));
  }
  if (rest.length > 0) yield Buffer.from(rest.toString("base64"), "latin1");
}
