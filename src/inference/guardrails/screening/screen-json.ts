import { isFields } from "../../../lib/json.ts";
import { type Hit, type ScreeningRule, screenedText, TextWindow } from "./text-window.ts";

/** The result of screening a value. */
export interface ScreeningResult<Value> {
  /** The original value if nothing was redacted. */
  readonly value: Value;
  readonly isBlocked: boolean;
  readonly hits: readonly MatchedRule[];
}

/** A rule that has matched, without the matched text. */
export interface MatchedRule {
  readonly guardrail: string;
  readonly type: ScreeningRule["type"];
  readonly action: ScreeningRule["action"];
}

type Fields = Readonly<Record<string, unknown>>;

/** Members that the gateway reads itself, or that contain names. They contain no prompt text. */
const NOT_TEXT: ReadonlySet<string> = new Set([
  ...["model", "models", "provider", "preset", "guardrail", "metadata", "trace", "user"],
  ...[
    "session_id",
    "safety_identifier",
    "prompt_cache_key",
    "previous_response_id",
    "service_tier",
  ],
  ...["type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "status"],
  ...["cache_control", "media_type", "mime_type", "detail", "signature"],
  ...["encrypted_content", "image_url", "file_data", "input_audio", "video_url", "b64_json"],
  "known_speaker_references",
]);
/** Members with a fixed set of values. A redaction would make them invalid. */
const CHOICES: ReadonlySet<string> = new Set([
  ...["response_format", "stream_format", "output_format", "encoding_format", "include"],
  ...["timestamp_granularities", "size", "aspect_ratio", "quality", "background"],
]);
/** Tool inputs and schemas. All names and values in them are screened, whatever their names. */
const TOOL_MEMBERS: ReadonlySet<string> = new Set([
  "input",
  "parameters",
  "input_schema",
  "schema",
]);
/** Members that contain JSON as text, whose escapes could hide text from the rules. */
const JSON_TEXTS: ReadonlySet<string> = new Set(["arguments", "partial_json"]);

const UNICODE_ESCAPE = /\\u([0-9a-fA-F]{4})/g;
/** Smaller numbers identify no person. */
const MIN_NUMBER = 1_000_000;

/** Returns a request or an answer with all its texts screened. */
export function screenJson<Value>(
  value: Value,
  rules: readonly ScreeningRule[],
): ScreeningResult<Value> {
  const screen = new JsonScreen(rules);
  const screened = screen.walk(value, false) as Value;
  return { value: screened, isBlocked: screen.isBlocked, hits: screen.hits };
}

/** Screens JSON values with the same rules, and collects the rules that matched. */
export class JsonScreen {
  readonly #rules: readonly ScreeningRule[];
  readonly #hits = new Map<string, MatchedRule>();
  isBlocked = false;

  constructor(rules: readonly ScreeningRule[]) {
    this.#rules = rules;
  }

  get hits(): MatchedRule[] {
    return [...this.#hits.values()];
  }

  readonly note = ({ rule }: Hit): void => {
    const { guardrail, type, action } = rule;
    this.add({ guardrail, type, action });
  };

  add(found: MatchedRule): void {
    const { guardrail, type, action } = found;
    this.#hits.set(`${guardrail} ${type} ${action}`, found);
  }

  text(text: string): string {
    const screened = screenedText(text, this.#rules, this.note);
    if (screened === undefined) this.isBlocked = true;
    return screened ?? "";
  }

  /** Screens the JSON arguments of a tool call, as a model wrote them. */
  jsonText(text: string): string {
    let parsed: unknown;
    try {
      parsed = JSON.parse(text);
    } catch {
      return this.#brokenJson(text);
    }
    try {
      const walked = this.walk(parsed, true);
      // If a member occurs twice, only its last value was screened, so the JSON is written again.
      return walked === parsed && !hasMemberTwice(text, parsed) ? text : JSON.stringify(walked);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      // Nested deeper than the stack. Text that cannot be screened must be redacted.
      return '"[REDACTED]"';
    }
  }

  /** Screens truncated or invalid JSON, whose escapes could also hide text. */
  #brokenJson(text: string): string {
    const unescaped = text.replace(UNICODE_ESCAPE, (_, code: string) =>
      String.fromCharCode(Number.parseInt(code, 16)),
    );
    if (unescaped === text) return this.text(text);
    const screened = this.text(unescaped);
    return screened === unescaped ? this.text(text) : screened;
  }

  /**
   * Returns the screened value, or the value itself if nothing is redacted.
   *
   * @param isAllText true if no member is excluded by its name
   */
  walk(value: unknown, isAllText: boolean): unknown {
    if (this.isBlocked) return value;
    if (typeof value === "string") return this.text(value);
    if (typeof value === "number") return isAllText ? this.#number(value) : value;
    if (Array.isArray(value)) return this.#array(value, isAllText);
    return isFields(value) ? this.#members(value, isAllText) : value;
  }

  #number(value: number): unknown {
    if (!Number.isInteger(value) || Math.abs(value) < MIN_NUMBER) return value;
    const digits = String(value);
    const screened = this.text(digits);
    return screened === digits ? value : screened;
  }

  #members(fields: Fields, isAllText: boolean): unknown {
    let changed: Record<string, unknown> | undefined;
    const entries = Object.entries(fields);
    for (const [at, [name, value]] of entries.entries()) {
      const screenedName = isAllText ? this.text(name) : name;
      const screened = this.#member(fields, name, value, isAllText);
      if (changed === undefined && (screened !== value || screenedName !== name)) {
        changed = Object.fromEntries(entries.slice(0, at));
      }
      if (changed !== undefined) define(changed, screenedName, screened);
    }
    return changed ?? fields;
  }

  #member(fields: Fields, name: string, value: unknown, isAllText: boolean): unknown {
    if (isAllText) return this.walk(value, true);
    if (NOT_TEXT.has(name) || (CHOICES.has(name) && !isFields(value))) return value;
    // In a text document this is text. In any other type it is bytes.
    if (name === "data" && fields.type !== "text") return value;
    if (typeof value === "string") {
      if (JSON_TEXTS.has(name)) return this.jsonText(value);
      if (name === "url" && isData(value)) return value;
    }
    return this.walk(value, TOOL_MEMBERS.has(name) && isFields(value));
  }

  #array(values: readonly unknown[], isAllText: boolean): unknown {
    let changed: unknown[] | undefined;
    for (let at = 0; at < values.length; ) {
      const parts = textParts(values, at);
      const screened = parts.length > 1 ? this.#joined(parts) : [this.walk(values[at], isAllText)];
      for (const [ahead, value] of screened.entries()) {
        if (changed === undefined && value !== values[at + ahead]) changed = [...values];
        if (changed !== undefined) changed[at + ahead] = value;
      }
      at += screened.length;
    }
    return changed ?? values;
  }

  /** Screens consecutive parts of one message as one text, because they follow each other in the prompt. */
  #joined(parts: readonly TextPart[]): readonly unknown[] {
    const window = new TextWindow(this.#rules, this.note);
    const released = window.end(parts.map(({ text }) => text).join(""));
    if (window.isBlocked) this.isBlocked = true;
    if (window.isBlocked) return parts;
    const texts = parts.map(() => "");
    let part = 0;
    let left = parts[0]!.text.length;
    for (const { length, text } of released) {
      const isPassed = text.length === length;
      for (let consumed = 0; consumed < length; ) {
        while (left === 0) left = parts[++part]!.text.length;
        const count = Math.min(left, length - consumed);
        if (isPassed) texts[part] += text.slice(consumed, consumed + count);
        else if (consumed === 0) texts[part] += text;
        consumed += count;
        left -= count;
      }
    }
    return parts.map((original, at) => {
      const rest = this.#withoutText(original);
      return texts[at] === original.text && rest === original
        ? original
        : { ...rest, text: texts[at] };
    });
  }

  /** Screens the other members, because citations also contain texts. */
  #withoutText(part: TextPart): Fields {
    const { text, ...others } = part;
    const screened = this.#members(others, false) as Fields;
    return screened === others ? part : { ...screened, text };
  }
}

/** Defines the property, so that a name such as `__proto__` becomes a member too. */
function define(fields: Record<string, unknown>, name: string, value: unknown): void {
  Object.defineProperty(fields, name, {
    ...{ value, enumerable: true, writable: true, configurable: true },
  });
}

interface TextPart extends Fields {
  readonly text: string;
}

function textParts(values: readonly unknown[], from: number): TextPart[] {
  const parts: TextPart[] = [];
  for (let at = from; at < values.length; at++) {
    const value = values[at];
    if (!isFields(value) || typeof value.text !== "string" || "role" in value) break;
    parts.push(value as TextPart);
  }
  return parts;
}

const JSON_STRINGS = /"(?:[^"\\]|\\.)*"(\s*:)?/g;

/**
 * Returns true if an object of the JSON text has two members with the same name.
 *
 * @param text the text that was parsed to `parsed`
 */
function hasMemberTwice(text: string, parsed: unknown): boolean {
  let names = 0;
  for (const [, colon] of text.matchAll(JSON_STRINGS)) if (colon !== undefined) names++;
  return names > memberCount(parsed);
}

function memberCount(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const members = Object.values(value);
  const memberTotal = Array.isArray(value) ? 0 : members.length;
  return members.reduce((sum: number, member) => sum + memberCount(member), memberTotal);
}

function isData(text: string): boolean {
  return text.startsWith("data:") && /^data:[\w.+/-]+[;,]/.test(text.slice(0, 100));
}

/** Returns the texts that are screened, for a moderation model. */
export function textsOf(value: unknown): string {
  const texts: string[] = [];
  const walk = (node: unknown, isAllText: boolean): void => {
    if (typeof node === "string") texts.push(node);
    else if (Array.isArray(node)) for (const member of node) walk(member, isAllText);
    else if (isFields(node)) {
      for (const [name, member] of Object.entries(node)) {
        if (isAllText) texts.push(name);
        else if (NOT_TEXT.has(name) || (name === "data" && node.type !== "text")) continue;
        else if (name === "url" && typeof member === "string" && isData(member)) continue;
        walk(member, isAllText || (TOOL_MEMBERS.has(name) && isFields(member)));
      }
    }
  };
  walk(value, false);
  return texts.join("\n");
}
