/** A browser that has signed in to the dashboard, as far as its requests show it. */
export interface DashboardBrowser {
  readonly cookie: string;
  readonly csrfToken: string;
  /** Sends a call of the dashboard's API from the dashboard's own origin, unless the headers say otherwise. */
  call(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string | undefined>,
  ): Promise<Response>;
}

interface Served {
  readonly baseUrl: string;
}

const SAME_ORIGIN = { "sec-fetch-site": "same-origin" };

/** Headers that are undefined are left out. */
export function askDashboard(
  { baseUrl }: Served,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string | undefined> = {},
): Promise<Response> {
  const stated = { ...SAME_ORIGIN, "content-type": "application/json", ...headers };
  return fetch(`${baseUrl}/dashboard/api/${path}`, {
    method,
    redirect: "manual",
    headers: Object.entries(stated).filter((entry): entry is [string, string] => !!entry[1]),
    body: body === undefined ? undefined : JSON.stringify(body),
  });
}

export async function signIn(gateway: Served, key: string): Promise<DashboardBrowser> {
  const response = await askDashboard(gateway, "POST", "session", { key });
  if (response.status !== 200) throw new Error(await response.text());
  const cookie = response.headers.get("set-cookie")!.split(";")[0]!;
  const { csrf_token: csrfToken } = (await response.json()) as { csrf_token: string };
  return {
    cookie,
    csrfToken,
    call: (method, path, body, headers) =>
      askDashboard(gateway, method, path, body, {
        cookie,
        "x-csrf-token": csrfToken,
        ...headers,
      }),
  };
}
