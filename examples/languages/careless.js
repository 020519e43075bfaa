const { writeFile } = require('fs/promises');

async function save(settings) {
  await writeFile('cfg.json', JSON.stringify(settings));
}

save({ colour: 'blue' }).then(() => console.log('saved'));
