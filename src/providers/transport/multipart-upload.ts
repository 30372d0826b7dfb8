/** A file to send. Each attempt reads it from the start. */
export interface FormFile {
  readonly name: string;
  readonly contentType: string;
  /** Bytes of the file. Undefined if the size is unknown. */
  readonly sizeBytes?: number | undefined;
  stream(): ReadableStream<Uint8Array>;
}

/** A named part of a form. */
export type FormPart =
  | { readonly name: string; readonly value: string }
  | { readonly name: string; readonly file: FormFile };

/** A multipart/form-data body (RFC 7578) that is built while it is sent, so that files of any size take no memory. */
interface MultipartBody {
  readonly contentType: string;
  readonly body: ReadableStream<Uint8Array>;
  /** Bytes of the body. Undefined if the size of a file is unknown. */
  readonly bodyBytes: number | undefined;
}

export function multipartForm(parts: readonly FormPart[]): MultipartBody {
  const boundary = `gateway-${crypto.randomUUID()}`;
  const contents = contentsOf(parts, boundary);
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: streamOf(piecesOf(contents)),
    bodyBytes: lengthOf(contents),
  };
}

type Content = Uint8Array | FormFile;

function contentsOf(parts: readonly FormPart[], boundary: string): Content[] {
  const encoder = new TextEncoder();
  const contents: Content[] = [];
  let text = "";
  for (const part of parts) {
    text += `--${boundary}\r\nContent-Disposition: form-data; name="${quoted(part.name)}"`;
    if ("value" in part) {
      text += `\r\n\r\n${part.value}\r\n`;
      continue;
    }
    const { name, contentType } = part.file;
    text += `; filename="${quoted(name)}"\r\nContent-Type: ${withoutBreaks(contentType)}\r\n\r\n`;
    contents.push(encoder.encode(text), part.file);
    text = "\r\n";
  }
  contents.push(encoder.encode(`${text}--${boundary}--\r\n`));
  return contents;
}

async function* piecesOf(contents: readonly Content[]): AsyncGenerator<Uint8Array, void> {
  for (const content of contents) {
    if (content instanceof Uint8Array) yield content;
    else yield* content.stream();
  }
}

function lengthOf(contents: readonly Content[]): number | undefined {
  let bytes = 0;
  for (const content of contents) {
    const length = content instanceof Uint8Array ? content.byteLength : content.sizeBytes;
    if (length === undefined) return undefined;
    bytes += length;
  }
  return bytes;
}

/** Returns a name escaped like in browsers (https://html.spec.whatwg.org/#multipart-form-data). */
function quoted(name: string): string {
  return name.replaceAll("\r", "%0D").replaceAll("\n", "%0A").replaceAll('"', "%22");
}

function withoutBreaks(value: string): string {
  return value.replaceAll(/[\r\n]/g, "");
}

/** Returns a stream of the pieces. Cancelling it also ends the generator. */
export function streamOf(pieces: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      const piece = await pieces.next();
      if (piece.done) controller.close();
      else controller.enqueue(piece.value);
    },
    async cancel() {
      await pieces.return(undefined);
    },
  });
}
