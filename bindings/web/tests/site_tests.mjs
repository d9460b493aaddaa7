/** Tests of the pages of examples/web: results, width, accessible names, work without a network, screenshots. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { check } from './compare.js';

const WIDTHS = [360, 1400];

const done = (page) => page.waitForFunction(() => document.getElementById('status').textContent === 'Done.');

async function screenshots(page, folder, name) {
  mkdirSync(folder, { recursive: true });
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 });
    await page.screenshot({ path: join(folder, `${name}-${width}.png`), fullPage: true });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(wide <= 0, `at ${width} pixels the page is ${wide} too wide`);
  }
}

/** Controls and pictures without a name that assistive technology reads. */
function unnamed(page) {
  return page.evaluate(() => {
    const name = (e) => e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() || e.textContent.trim();
    return [...document.querySelectorAll('button, input, select, a, [role=img]')].filter((e) => !name(e)).map((e) => e.outerHTML);
  });
}

export async function siteTests(test, { page, context, base, work, model }) {
  const folder = join(work, 'screenshots');
  await test('demo page', async () => {
    await page.goto(`${base}/site/index.html`);
    await done(page);
    const results = () => page.evaluate(() => [...document.querySelectorAll('canvas')].map((c) => c.getAttribute('aria-label')));
    const people = await results();
    check(people.every((text) => /A person on [45]\d percent/.test(text)), people.join('; '));
    await page.selectOption('#task', 'faces');
    await page.waitForFunction(() => [...document.querySelectorAll('canvas')].every((c) => /face/i.test(c.getAttribute('aria-label'))));
    const faces = await results();
    check(faces.every((text) => /^1 face: 9\d percent/.test(text)), faces.join('; '));
    await done(page);
    const names = await unnamed(page);
    check(names.length === 0, `without a name: ${names}`);
    await screenshots(page, folder, 'demo');
    return `${people[0]}; ${faces[0]}`;
  });
  await test('demo page with a camera', async () => {
    const status = (text) => page.waitForFunction((text) => document.getElementById('status').textContent === text, text);
    await page.click('#camera');
    await status('The camera is on.');
    await page.waitForFunction(() => [...document.querySelectorAll('canvas')].every((c) => c.width === 640 && c.height === 480));
    await page.click('#camera');
    await status('The camera is off.');
    // The last picture is still computed. It leaves the status as it is.
    await page.waitForTimeout(2000);
    await status('The camera is off.');
    const results = await page.evaluate(() => [...document.querySelectorAll('canvas')].map((c) => c.getAttribute('aria-label')));
    check(results.every((text) => /face/i.test(text)), results.join('; '));
    return results[0];
  });
  await test('demo page without a network', async () => {
    await page.evaluate(async () => (await navigator.serviceWorker.ready).active);
    await page.waitForFunction(async () => (await caches.match('models/astronaut.png')) && (await caches.match('inspect.html')));
    await context.setOffline(true);
    await page.goto(`${base}/site/index.html`);
    await done(page);
    await page.goto(`${base}/site/inspect.html`);
    await context.setOffline(false);
  });
  await test('inspector page', async () => {
    await page.goto(`${base}/site/inspect.html`);
    await page.setInputFiles('#file', model);
    await done(page);
    await page.click('#run');
    await page.waitForFunction(() => /second run/.test(document.getElementById('status').textContent));
    const text = await page.evaluate(() => document.getElementById('summary').textContent);
    check(/nodes run on/.test(text), text);
    await screenshots(page, folder, 'inspect');
    await page.setInputFiles('#file', { name: 'broken.tflite', mimeType: 'application/octet-stream', buffer: Buffer.from('no model') });
    await page.waitForFunction(() => /broken.tflite: invalid model/.test(document.getElementById('status').textContent));
  });
}
