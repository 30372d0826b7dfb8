/**
 * Mark in front of the text of a speech. The text is in a tag of the file as `sandbox-speech:<base64url of
 * UTF-8>;`, in every container. Readers search for the mark only, so they parse nothing of a hostile file.
 * The mark also survives copying into another container.
 */
const MARK = "sandbox-speech:";
const END = ";";
/** Bytes that are searched. Tags are at the beginning, and 4,096 characters are at most 22 KB of base64. */
const SEARCHED_BYTES = 64 * 1024;
const MAX_CHARACTERS = 4096;
const MAX_TEXT_BYTES = MAX_CHARACTERS * 4;

/** Returns the tag content of a text: ASCII without line breaks. */
export function spokenTextMark(text: string): string {
  return `${MARK}${Buffer.from(text, "utf8").toString("base64url")}${END}`;
}

/**
 * Returns the text that the sandbox spoke in a file. Returns undefined if the beginning of the file does not
 * contain it. Reads no further than SEARCHED_BYTES.
 */
export async function findSpokenText(
  file: ReadableStream<Uint8Array>,
): Promise<string | undefined> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of file) {
    pieces.push(piece);
    length += piece.length;
    if (length >= SEARCHED_BYTES) break;
  }
  const beginning = Buffer.concat(pieces).subarray(0, SEARCHED_BYTES);
  const index = beginning.indexOf(MARK, 0, "latin1");
  if (index < 0) return undefined;
  const from = index + MARK.length;
  const to = beginning.indexOf(END, from, "latin1");
  if (to < 0) return undefined;
  const decoded = Buffer.from(beginning.toString("latin1", from, to), "base64url");
  if (decoded.length === 0 || decoded.length > MAX_TEXT_BYTES) return undefined;
  const text = decoded.toString("utf8");
  return Array.from(text).length > MAX_CHARACTERS ? undefined : text;
}

/** Returns an ID3v2.4 tag with a comment. Players of MP3 and AAC skip it. */
export function id3Comment(comment: string): Uint8Array {
  const UTF_8 = 3;
  const body = Buffer.concat([
    Buffer.from([UTF_8]),
    Buffer.from("eng\0", "latin1"),
    Buffer.from(comment, "utf8"),
  ]);
  const frame = Buffer.concat([
    Buffer.from("COMM", "latin1"),
    synchsafe(body.length),
    Buffer.from([0, 0]),
    body,
  ]);
  const VERSION = [4, 0];
  const NO_FLAGS = 0;
  return Buffer.concat([
    Buffer.from("ID3", "latin1"),
    Buffer.from([...VERSION, NO_FLAGS]),
    synchsafe(frame.length),
    frame,
  ]);
}

/** Returns a length in four bytes of seven bits. */
function synchsafe(length: number): Buffer {
  return Buffer.from([21, 14, 7, 0].map((shift) => (length >> shift) & 0x7f));
}

/** Returns the comment block of FLAC and Opus files: the vendor and one comment. */
export function vorbisComments(comment: string): Buffer {
  const texts = ["model gateway sandbox", `COMMENT=${comment}`].map((text) => Buffer.from(text));
  const [vendor, entry] = texts as [Buffer, Buffer];
  return Buffer.concat([uint32(vendor.length), vendor, uint32(1), uint32(entry.length), entry]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
