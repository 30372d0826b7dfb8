export function isEventStream(contentType: string | null): boolean {
  // Servers that name no type for a stream exist; what they send is judged by what is in it.
  return contentType === null || /^\s*text\/event-stream\s*(?:;|$)/i.test(contentType);
}

export function isJson(contentType: string | null): boolean {
  return contentType !== null && /^\s*application\/(?:[\w.-]+\+)?json\s*(?:;|$)/i.test(contentType);
}
