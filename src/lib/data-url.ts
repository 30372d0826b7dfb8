/** The head of a data URL: `data:`, a media type, its parameters, and base64 (RFC 2397). */
const HEAD = /^data:([\w.+-]+\/[\w.+-]+)?((?:;[\w=.+-]+)*?)(;base64)?,/i;

/** Longest head that is searched: real heads are shorter, and searching a long text is slow. */
const MAX_HEAD_CHARACTERS = 1_024;

export interface DataOfUrl {
  /** Media type, in lower case. */
  readonly mediaType: string;
  readonly base64: string;
}

/** Returns the media type and content of a data URL, or undefined for any other URL. */
export function dataOfUrl(url: string): DataOfUrl | undefined {
  const match = HEAD.exec(url.slice(0, MAX_HEAD_CHARACTERS));
  if (match === null) return undefined;
  const [head, mediaType = "text/plain", , isBase64] = match;
  const data = url.slice(head.length);
  const base64 = isBase64 ? data : Buffer.from(unescaped(data)).toString("base64");
  return { mediaType: mediaType.toLowerCase(), base64 };
}

function unescaped(data: string): string {
  try {
    return decodeURIComponent(data);
  } catch {
    return data;
  }
}
