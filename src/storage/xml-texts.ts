const ENTITIES: Readonly<Record<string, string>> = {
  "&amp;": "&",
  "&lt;": "<",
  "&gt;": ">",
  "&quot;": '"',
  "&apos;": "'",
};

/**
 * What stands in each element of a name. Enough for S3's answers, in which no element holds one of its
 * own name and nothing is written as CDATA.
 */
export function xmlTexts(xml: string, element: string): string[] {
  const pattern = new RegExp(`<${element}(?:\\s[^>]*)?>([\\s\\S]*?)</${element}>`, "g");
  return [...xml.matchAll(pattern)].map(([, text]) =>
    text!.includes("<") ? text! : text!.replace(/&(?:amp|lt|gt|quot|apos);/g, (e) => ENTITIES[e]!),
  );
}
