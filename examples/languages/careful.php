<?php
function save($settings)
{
    $text = json_encode($settings);
    $file = fopen('cfg.json.new', 'w');
    fwrite($file, $text) === strlen($text) && fsync($file) || exit(1);
    fclose($file);
    rename('cfg.json.new', 'cfg.json');
    exec('sync .');  // PHP opens no folder
}

save(['colour' => 'blue']);
echo "saved\n";
