/** Opens pages in a headless Chromium, $DELEGRAPH_BROWSER, whose WebGPU device is SwiftShader and whose camera is a pattern. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const FLAGS = [
  '--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
  '--disable-sync', '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader',
  '--use-fake-ui-for-media-stream', '--use-fake-device-for-media-stream',
];

/**
 * Calls `f` with an empty page of a new browser, and returns its result. `work` has the npm package playwright-core above it;
 * `init` is a script that pages run first.
 */
export async function withPage(work, f, { init } = {}) {
  const { chromium } = createRequire(join(work, 'package.json'))('playwright-core');
  const profile = mkdtempSync(join(tmpdir(), 'delegraph-web-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.DELEGRAPH_BROWSER,
    headless: true,
    args: FLAGS,
    ignoreDefaultArgs: ['--disable-gpu'],
  });
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(300_000);
    if (init) await page.addInitScript(init);
    return await f(page, context);
  } finally {
    await context.close();
    // Processes of the browser may still write there.
    rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}
