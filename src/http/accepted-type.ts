const MAX_RANGES = 32;

/**
 * The content type that an Accept header asks for, of those that are offered, the usual one first
 * (RFC 9110, section 12.5.1). Where it names none of them it is passed over, as the standard allows.
 */
export function acceptedType(header: string | null, offered: readonly string[]): string {
  const usual = offered[0]!;
  let best = { type: usual, quality: 0 };
  for (const range of (header ?? "").split(",", MAX_RANGES)) {
    const [name = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const type = offered.find((one) => one === name || (one === usual && covers(name, one)));
    const quality = qualityOf(parameters);
    if (type !== undefined && quality > best.quality) best = { type, quality };
  }
  return best.type;
}

function covers(range: string, type: string): boolean {
  return range === "*/*" || (range.endsWith("/*") && type.startsWith(range.slice(0, -1)));
}

function qualityOf(parameters: readonly string[]): number {
  const stated = parameters.find((parameter) => parameter.startsWith("q="));
  const quality = stated === undefined ? 1 : Number(stated.slice(2));
  return quality >= 0 && quality <= 1 ? quality : 0;
}
