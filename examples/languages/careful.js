const { open, rename } = require('fs/promises');

async function save(settings) {
  const file = await open('cfg.json.new', 'w');
  await file.writeFile(JSON.stringify(settings));
  await file.sync();
  await file.close();
  await rename('cfg.json.new', 'cfg.json');
  const folder = await open('.');
  await folder.sync();
  await folder.close();
}

save({ colour: 'blue' }).then(() => console.log('saved'));
