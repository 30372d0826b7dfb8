import { allMatches, type Detector, heldByLength, type LabelledSpan } from "./detector.ts";

const GAP = '[\\s"“”„:,_-]{1,4}';
const ANY = (most: number) => `(?:[\\p{L}'’]{1,20}${GAP}){0,${most}}`;

/** Phrases of prompt injection in English, German, French, Spanish, Italian, Dutch and Portuguese. */
const PHRASES: readonly string[] = [
  `(?:ignore|disregard|forget|override|bypass|neglect)${GAP}${ANY(4)}(?:previous|prior|above|earlier|preceding|former|initial|original|system|your|these|those)${GAP}${ANY(3)}(?:instructions?|prompts?|rules|guidelines|directions|commands|constraints|programming|messages?)`,
  `(?:ignore|disregard|forget)${GAP}(?:everything|anything|all)${GAP}${ANY(3)}(?:above|before|previously|said|told)`,
  `(?:reveal|show|print|repeat|output|display|tell${GAP}me|give${GAP}me|what${GAP}(?:is|are|was|were))${GAP}${ANY(3)}(?:system|hidden|initial|original|secret|developer)${GAP}(?:prompt|instructions?|message)`,
  `(?:you${GAP}are|act${GAP}as|become|pretend${GAP}to${GAP}be)${GAP}${ANY(4)}(?:DAN|jailbroken|unrestricted|unfiltered|uncensored|without${GAP}(?:any${GAP})?(?:restrictions|rules|limits|filters))`,
  `(?:enable|enter|activate|switch${GAP}to)${GAP}${ANY(2)}(?:developer|debug|god|jailbreak|admin|sudo|DAN)${GAP}mode`,
  `do${GAP}anything${GAP}now`,
  `new${GAP}(?:system${GAP})?instructions?\\s{0,2}:`,
  "<\\|(?:im_start|im_end|system|endoftext|start_header_id|eot_id)\\|>",
  "\\[/?INST\\]|<<SYS>>|<</SYS>>",
  `(?:ignorier|vergiss|missacht|vergesst)\\p{L}{0,4}${GAP}${ANY(3)}(?:vorherig|bisherig|obig|vorig|frühere|ursprünglich)\\p{L}{0,4}${GAP}${ANY(2)}(?:anweisung|instruktion|regel|befehl|vorgabe|prompt)\\p{L}{0,3}`,
  `(?:ignore[rzs]?|oublie[rzs]?|néglige[rzs]?)${GAP}${ANY(4)}(?:instructions?|consignes?|règles?|directives?)${GAP}(?:précédentes?|antérieures?|ci-dessus|initiales?)`,
  `(?:ignora[rd]?|olvida[rd]?|descarta[rd]?|ignore|esqueça|desconsidere)${GAP}${ANY(4)}(?:instrucciones|instruções|reglas|regras|órdenes|ordens)${GAP}(?:anteriores|previas|prévias|de${GAP}arriba|acima|iniciales|iniciais)`,
  `(?:ignora(?:re|te)?|dimentica(?:re|te)?)${GAP}${ANY(4)}(?:istruzioni|regole|direttive)${GAP}(?:precedenti|iniziali|di${GAP}cui${GAP}sopra)`,
  `(?:negeer|vergeet)${GAP}${ANY(3)}(?:vorige|eerdere|voorgaande|bovenstaande)${GAP}${ANY(2)}(?:instructies|regels|opdrachten|aanwijzingen)`,
];

const HEURISTICS = new RegExp(
  `(?<![\\p{L}\\p{N}])(?:${PHRASES.join("|")})(?![\\p{L}\\p{N}])`,
  "giu",
);
/** Sixteen words with their gaps. Longer than any phrase above. */
const MAX_PHRASE = 384;

/** Detects prompt injection by known phrases. Other wordings are not detected. */
export class Injection implements Detector {
  readonly cost = 1;
  readonly heldFrom = heldByLength(MAX_PHRASE);

  find(text: string, from: number): LabelledSpan[] {
    return allMatches(HEURISTICS, text, from).map((match) => ({
      start: match.index,
      end: match.index + match[0].length,
      label: "[REDACTED]",
    }));
  }
}
