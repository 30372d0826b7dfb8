/**
 * The types of streams: that of events, and the defaults that frameworks use if none is set.
 * What is sent under those is judged by what is in it. Of a field that proxies have made two of, the first
 * counts.
 */
const STREAM = /^\s*(?:text\/event-stream|text\/plain|application\/octet-stream)\s*(?:[;,]|$)/i;

export function isEventStream(contentType: string | null): boolean {
  return contentType === null || STREAM.test(contentType);
}

export function isJson(contentType: string | null): boolean {
  return (
    contentType !== null && /^\s*application\/(?:[\w.-]+\+)?json\s*(?:[;,]|$)/i.test(contentType)
  );
}
