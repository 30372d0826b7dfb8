import { GatewayError } from "../lib/errors.ts";

const HOW_TO_SEND = "Send it as: Authorization: Bearer <API_KEY>";
const OUR_KEYS = "keys of this gateway begin with gateway_sk_ or gateway_mgmt_";
const OURS = /^gateway_[a-z]+_/;
/** What programs send where the variable that should hold the key is not set. */
const UNSET = /^(?:undefined|null|none|nil|\$\{?\w+\}?|<.*>|your[-_ ].*)$/i;
const WRAPPED = /^["'`\u2018-\u201d]|["'`\u2018-\u201d]$|\s/;
/** Key forms of other services: OpenAI's and those alike, Google's, Groq's, xAI's, Hugging Face's, AWS's. */
const OTHERS = /^(?:sk-|pk-|rk-|AIza|gsk_|xai-|hf_|nvapi-|AKIA|r8_|csk-|fw_|tgp_|pplx-)/;

export function missingKey(): GatewayError {
  return new GatewayError("missing_api_key", `No API key was given. ${HOW_TO_SEND}`);
}

/** An Authorization header of another form than a key's. */
export function refusedHeader(): GatewayError {
  const message = `The Authorization header is not of the form that holds an API key. ${HOW_TO_SEND}`;
  return new GatewayError("invalid_api_key", message);
}

/** A text that cannot be a key of this gateway. Says what is likely wrong with it, and never quotes it. */
export function malformedKey(text: string): GatewayError {
  return new GatewayError("invalid_api_key", `The API key is not valid: ${faultOf(text)}.`);
}

function faultOf(text: string): string {
  const bare = text.trim();
  if (bare === "" || UNSET.test(bare)) {
    return "a placeholder was sent in its place, so the variable that should hold it is most likely not set";
  }
  if (WRAPPED.test(text)) return "there are quotes or white space in it";
  if (OURS.test(bare)) return "it is mistyped or truncated (its checksum does not match)";
  if (OTHERS.test(bare)) return `it looks like the key of another service; ${OUR_KEYS}`;
  return OUR_KEYS;
}
