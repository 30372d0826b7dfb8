/** .NET's form of a name that is not ASCII, in one piece (RFC 2047, section 2). */
const ENCODED_WORD = /^=\?utf-8\?B\?([A-Za-z0-9+/]+={0,2})\?=$/i;

/** The name of a part's file as its sender knows it, without folders. */
export function partFilename(stated: string | undefined): string {
  const encoded = ENCODED_WORD.exec(stated ?? "")?.[1];
  if (encoded === undefined) return stated ?? "";
  const name = Buffer.from(encoded, "base64").toString();
  const last = name.slice(Math.max(name.lastIndexOf("/"), name.lastIndexOf("\\")) + 1);
  return last === "." || last === ".." ? "" : last;
}
