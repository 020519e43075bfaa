<?php
function save($settings)
{
    file_put_contents('cfg.json', json_encode($settings));
}

save(['colour' => 'blue']);
echo "saved\n";
