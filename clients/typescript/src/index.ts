// SPDX-License-Identifier: Apache-2.0

// A client for `verge serve --http`: put delayed tasks, cancel them by key, work on them.
//
//   const tasks = new Tasks("http://127.0.0.1:11380");
//   await tasks.put("orders", { body: "cancel order 7", key: "order-7", delay: 30 * 60_000 });
//   await tasks.cancel("orders", "order-7");               // "cancelled", "taken" or "not-found"
//   await tasks.work("orders", async task => { ... }, { signal });
//
// It uses fetch and nothing else: Node 18 and later, Deno, Bun, browsers. What a put has acknowledged
// is on disk. The types of requests and responses are generated from the server's contract.

import type { components } from "./contract.js";

type Schemas = components["schemas"];
export type NewTask = Schemas["NewTask"];
export type Outcome = Schemas["Outcome"];
export type Task = Schemas["Task"];
export type Reserved = Schemas["Reserved"];
export type Tube = Schemas["Tube"];
export type Server = Schemas["Server"];
export type Problem = Schemas["Problem"];
export type State = "ready" | "delayed" | "reserved" | "buried";

/** The server has refused a request, and says why. */
export class ProblemError extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(`${problem.title}: ${problem.detail}`);
    this.name = "ProblemError";
    this.problem = problem;
  }
  get status(): number {
    return this.problem.status;
  }
  /** The word that programs compare: "taken", "stale-lease", "not-found". */
  get kind(): string {
    return this.problem.type.slice(this.problem.type.lastIndexOf(":") + 1);
  }
}

export interface Options {
  /** A token of `verge token add`, if the server asks for one. */
  token?: string;
  /** Instead of the global one. */
  fetch?: typeof fetch;
  /** How often a request is sent again after the connection failed or the server was overloaded. */
  retries?: number;
}

export interface WorkOptions {
  /** Ends work() after the tasks that have been taken. */
  signal?: AbortSignal;
  /** How many tasks are worked on at once. */
  concurrency?: number;
  /** How long the server waits for a task before it answers with none, in milliseconds. */
  wait?: number;
  /** The delay before a task is handed out again whose handler has thrown, in milliseconds. */
  retryDelay?: number;
  /** Told about what a handler has thrown, and about requests that failed. */
  onError?: (error: unknown, task?: Reserved) => void;
}

const pause = (ms: number, signal?: AbortSignal) =>
  new Promise<void>(done => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });

export class Tasks {
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #fetch: typeof fetch;
  readonly #retries: number;

  constructor(url: string, options: Options = {}) {
    this.#base = url.replace(/\/+$/, "");
    this.#token = options.token;
    this.#fetch = options.fetch ?? fetch;
    this.#retries = options.retries ?? 3;
  }

  /** Puts a task. It is on disk when this returns. Sent again, if need be, it is put once. */
  async put(tube: string, task: NewTask): Promise<Outcome> {
    return this.#ask("POST", this.#tube(tube, "/tasks"), { body: task, once: true });
  }
  /** Puts up to 1,000 tasks: all of them, or none. */
  async putMany(tube: string, tasks: NewTask[]): Promise<Outcome[]> {
    return this.#ask("POST", this.#tube(tube, "/tasks"), { body: tasks, once: true });
  }
  /** Cancels by key. "cancelled": no worker will get the task. "taken": one has it. */
  async cancel(tube: string, key: string): Promise<"cancelled" | "taken" | "not-found"> {
    return this.#change("DELETE", this.#tube(tube, `/keys/${encodeURIComponent(key)}`), "cancelled");
  }
  /** Gives the task with this key another time: milliseconds from now, or a date. */
  async reschedule(tube: string, key: string, when: number | Date): Promise<"rescheduled" | "taken" | "not-found"> {
    const body = typeof when === "number" ? { delay: when } : { due: when.toISOString() };
    return this.#change("PUT", this.#tube(tube, `/keys/${encodeURIComponent(key)}`), "rescheduled", body);
  }

  /** Takes up to `max` tasks, and waits for the first one up to `wait` milliseconds. */
  async reserve(tube: string, options: { wait?: number; max?: number; signal?: AbortSignal } = {}): Promise<Reserved[]> {
    const query = `?wait=${Math.round(options.wait ?? 0)}ms&max=${options.max ?? 1}`;
    const r = await this.#ask<{ tasks: Reserved[] }>("POST", this.#tube(tube, "/reserve" + query),
      options.signal ? { signal: options.signal, again: false } : { again: false });
    return r.tasks;
  }
  /** The task is done. Throws a ProblemError of kind "stale-lease" if the lease has ended. */
  async ack(task: Reserved | string): Promise<void> {
    await this.#lease(task, "ack");
  }
  async release(task: Reserved | string, options: { delay?: number; priority?: number } = {}): Promise<void> {
    await this.#lease(task, "release", options);
  }
  async bury(task: Reserved | string, options: { priority?: number } = {}): Promise<void> {
    await this.#lease(task, "bury", options);
  }
  /** The time to run begins anew. */
  async touch(task: Reserved | string): Promise<void> {
    await this.#lease(task, "touch");
  }

  /** A task by its id, or undefined. */
  async show(id: number): Promise<Task | undefined> {
    return this.#orNothing(this.#ask<Task>("GET", `/v1/tasks/${id}`));
  }
  async showKey(tube: string, key: string): Promise<Task | undefined> {
    return this.#orNothing(this.#ask<Task>("GET", this.#tube(tube, `/keys/${encodeURIComponent(key)}`)));
  }
  /** Makes buried tasks ready, or delayed ones if none is buried. Returns how many. */
  async kick(tube: string, max = 1): Promise<number> {
    return (await this.#ask<{ kicked: number }>("POST", this.#tube(tube, "/kick"), { body: { max } })).kicked;
  }
  /** Nothing is handed out for so many milliseconds; 0 ends a pause. */
  async pause(tube: string, ms: number): Promise<void> {
    await this.#ask("POST", this.#tube(tube, "/pause"), { body: { for: ms } });
  }
  /** The tasks of a tube in one state, in their order, page by page. */
  async *list(tube: string, state: State, options: { bodies?: boolean } = {}): AsyncGenerator<Task> {
    for (let after = ""; ;) {
      const page = await this.#ask<Schemas["TaskList"]>("GET",
        this.#tube(tube, `/tasks?state=${state}&bodies=${options.bodies ?? false}${after}`));
      yield* page.tasks;
      if (page.next === undefined) return;
      after = `&after=${encodeURIComponent(page.next)}`;
    }
  }
  async *tubes(): AsyncGenerator<Tube> {
    for (let after = ""; ;) {
      const page = await this.#ask<Schemas["TubeList"]>("GET", `/v1/tubes${after}`);
      yield* page.tubes;
      if (page.next === undefined) return;
      after = `?after=${encodeURIComponent(page.next)}`;
    }
  }
  async server(): Promise<Server> {
    return this.#ask("GET", "/v1/server");
  }

  /**
   * Works on tasks until the signal: each is acked when the handler returns, released if it throws. A
   * task whose handler takes longer than half of its time to run is touched.
   */
  async work(tube: string, handler: (task: Reserved) => Promise<void> | void, options: WorkOptions = {}): Promise<void> {
    const { signal, concurrency = 1, wait = 30_000, retryDelay = 0, onError = () => {} } = options;
    const running = new Set<Promise<void>>();
    while (!signal?.aborted) {
      if (running.size >= concurrency) {
        await Promise.race(running);
        continue;
      }
      let got: Reserved[];
      try {
        got = await this.reserve(tube, { wait, max: Math.min(1000, concurrency - running.size), ...(signal ? { signal } : {}) });
      } catch (error) {
        if (signal?.aborted) break;
        onError(error);
        await pause(1000, signal);
        continue;
      }
      for (const task of got) {
        const one = this.#workOn(task, handler, retryDelay, onError).finally(() => running.delete(one));
        running.add(one);
      }
    }
    await Promise.all(running);
  }

  async #workOn(task: Reserved, handler: (task: Reserved) => Promise<void> | void, retryDelay: number,
    onError: (error: unknown, task?: Reserved) => void): Promise<void> {
    const touching = setInterval(() => this.touch(task).catch(error => onError(error, task)), Math.min(task.ttr / 2, 2 ** 30));
    let failure: unknown;
    try {
      await handler(task);
    } catch (error) {
      failure = error ?? new Error("the handler has thrown nothing");
      onError(failure, task);
    } finally {
      clearInterval(touching);
    }
    try {
      if (failure === undefined) await this.ack(task);
      else await this.release(task, { delay: retryDelay });
    } catch (error) {
      onError(error, task);
    }
  }

  #tube(name: string, rest: string): string {
    return `/v1/tubes/${encodeURIComponent(name)}${rest}`;
  }
  async #lease(task: Reserved | string, verb: string, body?: object): Promise<void> {
    const lease = typeof task === "string" ? task : task.lease;
    await this.#ask("POST", `/v1/leases/${encodeURIComponent(lease)}/${verb}`, body ? { body, again: false } : { again: false });
  }
  async #change<T extends string>(method: string, path: string, done: T, body?: object): Promise<T | "taken" | "not-found"> {
    try {
      await this.#ask(method, path, body ? { body } : {});
      return done;
    } catch (error) {
      if (error instanceof ProblemError && (error.kind === "taken" || error.kind === "not-found")) return error.kind;
      throw error;
    }
  }
  async #orNothing<T>(what: Promise<T>): Promise<T | undefined> {
    try {
      return await what;
    } catch (error) {
      if (error instanceof ProblemError && error.status === 404) return undefined;
      throw error;
    }
  }

  /** `once`: an Idempotency-Key lets the server know a request that is sent again. */
  async #ask<T>(method: string, path: string, options: { body?: unknown; once?: boolean; again?: boolean; signal?: AbortSignal } = {}): Promise<T> {
    const headers: Record<string, string> = {};
    if (this.#token !== undefined) headers["Authorization"] = `Bearer ${this.#token}`;
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    if (options.once) headers["Idempotency-Key"] = crypto.randomUUID();
    const init: RequestInit = { method, headers };
    if (options.body !== undefined) init.body = JSON.stringify(options.body);
    if (options.signal) init.signal = options.signal;
    for (let attempt = 0; ; ++attempt) {
      const last = options.again === false || attempt >= this.#retries;
      let response: Response;
      try {
        response = await this.#fetch(this.#base + path, init);
      } catch (error) {
        if (last || options.signal?.aborted) throw error;
        await pause(100 * 2 ** attempt * (0.5 + Math.random()), options.signal);
        continue;
      }
      if (response.ok) return await response.json() as T;
      const problem = response.headers.get("content-type")?.startsWith("application/problem+json")
        ? await response.json() as Problem
        : { type: "urn:verge:problem:unknown", title: response.statusText, status: response.status, detail: await response.text() };
      if (last || (response.status !== 503 && response.status !== 429)) throw new ProblemError(problem);
      await pause(1000 * Number(response.headers.get("retry-after") ?? 1), options.signal);
    }
  }
}
